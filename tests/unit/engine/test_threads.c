/* CPU quotas of control groups, read from a made-up /sys/fs/cgroup. */
#include "harness.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/cpu/parallel_for.h"
#include "engine/engine.h"

struct tree {
    char root[64];
    char proc[96];
};

static struct tree make_tree(const char *proc_cgroup)
{
    struct tree tree = {.root = "/tmp/sluice-cgroup-XXXXXX"};
    assert_non_null(mkdtemp(tree.root));
    snprintf(tree.proc, sizeof tree.proc, "%s/self", tree.root);
    FILE *file = fopen(tree.proc, "w");
    assert_non_null(file);
    fputs(proc_cgroup, file);
    fclose(file);
    return tree;
}

/* Writes root/path, making the folders before it. */
static void put(const struct tree *tree, const char *path, const char *text)
{
    char full[256];
    snprintf(full, sizeof full, "%s/%s", tree->root, path);
    for (char *at = full + strlen(tree->root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        mkdir(full, 0755);
        *at = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void remove_tree(const struct tree *tree)
{
    char command[96];
    snprintf(command, sizeof command, "rm -r %s", tree->root);
    assert_int_equal(system(command), 0);
}

static void check(const struct tree *tree, double expected)
{
    double quota = threads_cgroup_quota(tree->proc, tree->root);
    remove_tree(tree);
    assert_true(quota == expected);
}

TEST(version_2_takes_the_least_on_the_way_up)
{
    struct tree tree = make_tree("0::/a/b\n");
    put(&tree, "a/b/cpu.max", "300000 100000\n");
    put(&tree, "a/cpu.max", "150000 100000\n");
    put(&tree, "cpu.max", "max 100000\n");
    check(&tree, 1.5);
}

TEST(version_2_without_a_quota)
{
    struct tree tree = make_tree("0::/a\n");
    put(&tree, "a/cpu.max", "max 100000\n");
    check(&tree, 0);
}

TEST(version_1_reads_the_cpu_controller)
{
    struct tree tree = make_tree("5:memory:/m\n4:cpu,cpuacct:/a\n");
    put(&tree, "cpu/a/cpu.cfs_quota_us", "400000\n");
    put(&tree, "cpu/a/cpu.cfs_period_us", "100000\n");
    put(&tree, "cpu/cpu.cfs_quota_us", "-1\n");
    put(&tree, "cpu/cpu.cfs_period_us", "100000\n");
    check(&tree, 4);
}

/* Inside a container the path is the host's; the container's own root is what can be read. */
TEST(a_group_that_cannot_be_seen_leaves_the_root)
{
    struct tree tree = make_tree("0::/not/here\n");
    put(&tree, "cpu.max", "200000 100000\n");
    check(&tree, 2);
}

TEST(no_groups_no_quota)
{
    assert_true(threads_cgroup_quota("/nonexistent/cgroup", "/nonexistent") == 0);
}

TEST(affinity_bounds_the_default)
{
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_true(engine_default_threads() >= 1);
    assert_true(engine_default_threads() <= (unsigned)CPU_COUNT(&before));
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++) {
        if (CPU_ISSET(cpu, &before)) { CPU_SET(cpu, &one); }
    }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(engine_default_threads(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}
