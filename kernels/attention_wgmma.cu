/* Attention on Hopper: what attention.cu computes, by the products of a whole warpgroup (wgmma), which read keys and
 * values from shared memory.
 *
 * A block takes a span: 64 queries of a row for each of its warpgroups, of one head. One more warpgroup only copies: it
 * runs ahead of the others, through this span's keys and values in steps of KEYS tokens and on into the next span. It
 * hands places in shared memory over by barriers: "full" when copies have arrived, "empty" when all warps are done. The
 * others need no barrier among themselves, so that one computes powers while another one's products run. Registers are
 * moved to where they are needed: the copying lanes keep 24 or 40.
 *
 * In a warpgroup each warp has a strip of 16 queries, with scores and outputs in registers just as in attention.cu. The
 * steps go from the row's end to its start, so that only the first one has keys beyond the row to mask. With OVERLAP, a
 * step's powers are computed while the products with the values of the step before run.
 *
 * The work on a query depends on its row's length and its place in the row alone. Tokens beyond a row are never read:
 * their places hold zeros. Within a window, keys that no query of a warpgroup sees are skipped a step at a time, and a
 * query may see none of a step's keys.
 *
 * The shapes below are the fastest of about thirty on an H200 (docs/speed.md). Products, exponentials and the issue of
 * instructions each take about half of the time at head dims 32 and 64, so that how they overlap decides. */
#include "kernels/attention_strip.h"
#include "kernels/wgmma.h"

enum { GROUP_QUERIES = 64 }; /* of a warpgroup */

/* How the work is cut for a head dim. BLOCKS: resident on a multiprocessor. STAGES, SPANS: places in shared memory for
 * steps and for the queries of spans. SHARED_QUERIES: products read queries there, else from registers. */
template <int GROUPS_, int BLOCKS_, int KEYS_, int STAGES_, int SPANS_, bool SHARED_QUERIES_, bool OVERLAP_>
struct wgmma_shape {
    static constexpr int GROUPS = GROUPS_, BLOCKS = BLOCKS_, KEYS = KEYS_, STAGES = STAGES_, SPANS = SPANS_;
    static constexpr bool SHARED_QUERIES = SHARED_QUERIES_, OVERLAP = OVERLAP_;
};
template <int HEAD_DIM> struct wgmma_shape_of;
template <> struct wgmma_shape_of<32> : wgmma_shape<2, 2, 64, 4, 2, false, false> {
};
template <> struct wgmma_shape_of<64> : wgmma_shape<4, 1, 64, 4, 2, true, true> {
};
template <> struct wgmma_shape_of<128> : wgmma_shape<3, 1, 64, 4, 2, true, true> {
};
template <> struct wgmma_shape_of<256> : wgmma_shape<2, 1, 64, 2, 1, true, false> {
};

/* The shape, and what follows from it. */
template <int HEAD_DIM_> struct wgmma_plan : wgmma_shape_of<HEAD_DIM_> {
    typedef wgmma_shape_of<HEAD_DIM_> shape;
    static constexpr int HEAD_DIM = HEAD_DIM_;
    static constexpr int SPAN_QUERIES = GROUP_QUERIES * shape::GROUPS;
    static constexpr int THREADS = (shape::GROUPS + 1) * WARPGROUP;
    static constexpr int ROW = HEAD_DIM == 32 ? 64 : 128;       /* bytes of a panel's row */
    static constexpr int IN_PANEL = ROW / 16;                   /* chunks of it */
    static constexpr int OUT = HEAD_DIM < 128 ? HEAD_DIM : 128; /* columns of one product with values */
    /* Registers of a lane; four warps have 512 for each lane of one, at first in equal parts. */
    static constexpr int EQUAL = 512 / shape::BLOCKS / (shape::GROUPS + 1) / 8 * 8;
    static constexpr int COPYING = shape::GROUPS == 2 && shape::BLOCKS == 1 ? 40 : 24;
    static constexpr int REST = (EQUAL * (shape::GROUPS + 1) - COPYING) / shape::GROUPS / 8 * 8;
    static constexpr int ATTENDING = REST < 240 ? REST : 240;
};

/* A step's keys and values and a span's queries, each as panels (wgmma.h) of KEYS or GROUP_QUERIES tokens. */
template <class S> struct wgmma_step {
    uint4 keys[S::KEYS * S::HEAD_DIM / CHUNK], values[S::KEYS * S::HEAD_DIM / CHUNK];
};

template <class S> struct wgmma_queries {
    uint4 of_group[S::GROUPS][GROUP_QUERIES * S::HEAD_DIM / CHUNK];
};

/* Whether a place is in use: it is empty at first, then full and empty in turn. */
struct wgmma_use {
    mbarrier full, empty;
};

template <class S> struct wgmma_memory {
    wgmma_step<S> steps[S::STAGES];
    wgmma_queries<S> queries[S::SPANS];
    struct kernel_strip spans[S::SPANS]; /* the first strip of each */
    wgmma_use step_use[S::STAGES], span_use[S::SPANS];
};

/* Goes through COUNT places in turn. */
template <int COUNT> struct wgmma_turn {
    int at = 0;
    uint32_t parity = 0; /* of this use of the place */

    __device__ __forceinline__ void next()
    {
        if (++at == COUNT) {
            at = 0;
            parity ^= 1;
        }
    }
};

/* The keys that any of the queries from `from` to before `to` sees. */
template <int VIEW, class T> __device__ __forceinline__ int first_key(const attention_row<T> &row, int from)
{
    return VIEW == ATTENTION_WINDOW ? max(0, from - row.before) : 0;
}

template <int VIEW, class T> __device__ __forceinline__ int end_key(const attention_row<T> &row, int to)
{
    return VIEW == ATTENTION_WINDOW ? min(row.length, to + row.behind) : row.length;
}

/* Steps from `first` to before `end`. */
template <class S> __device__ __forceinline__ int count_steps(int first, int end)
{
    return (end - first + S::KEYS - 1) / S::KEYS;
}

/* --- the warpgroup that copies --- */

/* Copies COUNT tokens from `first` on, as panels of COUNT rows; zeros beyond the row. */
template <class T, class S, int COUNT>
__device__ __forceinline__ void tokens_copy(const T *from, const attention_row<T> &row, int first, uint4 *to)
{
    constexpr int CHUNKS = S::HEAD_DIM / CHUNK, IN_PANEL = S::IN_PANEL, TOKENS = WARPGROUP / CHUNKS;
    const int lane = static_cast<int>(threadIdx.x % WARPGROUP), token = lane / CHUNKS, chunk = lane % CHUNKS;
    const T *at = from + ((first + token) * row.stride + chunk * CHUNK);
    int left = row.length - first - token;
    to += chunk / IN_PANEL * COUNT * IN_PANEL;
#pragma unroll
    for (int i = 0; i < COUNT / TOKENS; i++, at += TOKENS * row.stride, left -= TOKENS) {
        const int twist = TOKENS % 8 == 0 ? 0 : i; /* the swizzle is the same in every eighth row */
        const int place = wgmma_place<S::ROW>(token + twist * TOKENS, chunk % IN_PANEL);
        copy_begin(&to[place + (i - twist) * TOKENS * IN_PANEL], at, left > 0);
    }
}

/* Hands places over when their copies have arrived: each one place after the place whose copies begin. */
struct copy_order {
    mbarrier *pending = nullptr; /* of the place whose copies are under way */

    /* Its copies have arrived. */
    __device__ __forceinline__ void hand_over()
    {
        async_fence();
        mbarrier_arrive(pending);
        pending = nullptr;
    }

    /* Waits until a place is empty; if it is not yet, first hands over the place whose copies are under way. */
    __device__ __forceinline__ void wait(mbarrier *empty, uint32_t parity)
    {
        if (pending != nullptr && !mbarrier_ended(empty, parity)) {
            copy_wait();
            hand_over();
        }
        mbarrier_wait(empty, parity);
    }

    /* All copies begun since the last call are those of this place. */
    __device__ __forceinline__ void add(mbarrier *full)
    {
        copy_commit();
        if (pending != nullptr) {
            copy_wait_but<1>();
            hand_over();
        }
        pending = full;
    }
};

template <class T, class S, int VIEW>
__device__ __forceinline__ void copy_all(const struct kernel_attention_args &a, uint32_t units, wgmma_memory<S> *memory)
{
    wgmma_turn<S::STAGES> turn;
    wgmma_turn<S::SPANS> place;
    copy_order order;
    for (uint32_t round = 0; round_unit(round) < units; round++, place.next()) {
        const uint32_t unit = round_unit(round);
        const struct kernel_strip span = a.ragged.tiles[unit / a.heads].strips[0];
        const attention_row<T> row = attention_row_of<T, S::HEAD_DIM, VIEW>(a, span, unit % a.heads);
        const int first = static_cast<int>(span.first), begin = first_key<VIEW>(row, first);
        const int all = count_steps<S>(begin, end_key<VIEW>(row, first + S::SPAN_QUERIES));
        order.wait(&memory->span_use[place.at].empty, place.parity ^ 1);
        if (threadIdx.x % WARPGROUP == 0) { memory->spans[place.at] = span; }
#pragma unroll 1
        for (int group = 0; group < S::GROUPS; group++) {
            tokens_copy<T, S, GROUP_QUERIES>(row.queries, row, first + GROUP_QUERIES * group,
                                             memory->queries[place.at].of_group[group]);
        }
        order.add(&memory->span_use[place.at].full);
        for (int key = begin + (all - 1) * S::KEYS; key >= begin; key -= S::KEYS, turn.next()) {
            wgmma_step<S> *step = &memory->steps[turn.at];
            order.wait(&memory->step_use[turn.at].empty, turn.parity ^ 1);
            tokens_copy<T, S, S::KEYS>(row.keys, row, key, step->keys);
            tokens_copy<T, S, S::KEYS>(row.keys + row.values, row, key, step->values);
            order.add(&memory->step_use[turn.at].full);
        }
    }
    copy_wait();
    if (order.pending != nullptr) { order.hand_over(); }
}

/* --- the warps that attend --- */

/* Clears the strip and, if products read queries from registers, loads them as fragments. */
template <class T, class S>
__device__ __forceinline__ void queries_load(attention_strip<S::HEAD_DIM> *strip, const uint4 *shared)
{
    const int lane = lane_id(), warp = static_cast<int>(threadIdx.x / WARP % 4);
    strip_clear(strip);
#pragma unroll
    for (int c = 0; c < (S::SHARED_QUERIES ? 0 : S::HEAD_DIM / GROUP); c++)
#pragma unroll
        for (int side = 0; side < 2; side++) {
            const int at = 16 * warp + lane / 4 + 8 * side, chunk = 4 * c + lane % 4;
            const uint4 x = shared[chunk / S::IN_PANEL * GROUP_QUERIES * S::IN_PANEL +
                                   wgmma_place<S::ROW>(at, chunk % S::IN_PANEL)];
            uint32_t words[4] = {x.x, x.y, x.z, x.w};
            quad_transpose(words);
            strip->queries[c][side] = make_uint4(words[0], words[1], words[2], words[3]);
        }
}

/* Starts the products of queries and keys. */
template <class T, class S>
__device__ __forceinline__ void start_scores(const attention_strip<S::HEAD_DIM> &strip, const uint4 *queries,
                                             const uint4 *keys, float (&scores)[S::KEYS / 8][4])
{
    const wgmma_matrix right = wgmma_matrix_at<S::ROW>(keys, 0), left = wgmma_matrix_at<S::ROW>(queries, 0);
    wgmma_hold(scores);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < S::HEAD_DIM / 16; k++) {
        constexpr int IN_PANEL = S::ROW / 32; /* products */
        const wgmma_matrix b = wgmma_skip(right, k / IN_PANEL * S::KEYS * S::ROW + k % IN_PANEL * 32);
        if (S::SHARED_QUERIES) {
            wgmma<T, S::KEYS, false>::product(
                scores, wgmma_skip(left, k / IN_PANEL * GROUP_QUERIES * S::ROW + k % IN_PANEL * 32), b, k > 0);
        } else {
            const uint4 upper = strip.queries[k / 2][0], lower = strip.queries[k / 2][1];
            const uint32_t even[4] = {upper.x, lower.x, upper.y, lower.y},
                           odd[4] = {upper.z, lower.z, upper.w, lower.w};
            wgmma<T, S::KEYS, false>::product(scores, k % 2 == 0 ? even : odd, b, k > 0);
        }
    }
    wgmma_commit();
}

/* Starts adding the values, weighted by the powers. */
template <class T, class S>
__device__ __forceinline__ void start_values(attention_strip<S::HEAD_DIM> *strip, const uint4 *values,
                                             const uint32_t (&powers)[S::KEYS / 16][4])
{
    const wgmma_matrix right = wgmma_matrix_at<S::ROW>(values, S::KEYS * S::ROW);
    wgmma_hold(strip->out);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < S::KEYS / 16; k++)
#pragma unroll
        for (int c = 0; c < S::HEAD_DIM / S::OUT; c++) {
            wgmma<T, S::OUT, true>::product(reinterpret_cast<float(&)[S::OUT / 8][4]>(strip->out[c * S::OUT / 8]),
                                            powers[k], wgmma_skip(right, c * 2 * S::OUT * S::KEYS + k * 16 * S::ROW),
                                            1);
        }
    wgmma_commit();
}

/* Masks scores and turns them into powers, by which the outputs have yet to shrink. WHOLE: the step is within the row.
 */
template <class T, class S, int VIEW, bool WHOLE>
__device__ __forceinline__ void powers_of(const attention_row<T> &row, int first, int key,
                                          attention_strip<S::HEAD_DIM> *strip, float (&scores)[S::KEYS / 8][4],
                                          float (&shrink)[2])
{
    const int count = row.length - key;
    if (VIEW == ATTENTION_BIASED) { strip_bias(row, first, key, scores); }
    if (VIEW == ATTENTION_WINDOW) { strip_window(row, first, key, scores); }
    if (!WHOLE) {
        const int lane = lane_id();
#pragma unroll
        for (int n = 0; n < S::KEYS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (8 * n + 2 * (lane % 4) + i % 2 >= count) { scores[n][i] = minus_infinity(); }
            }
    }
    strip_powers<VIEW == ATTENTION_WINDOW>(strip, row.scale, scores, shrink);
}

template <class T, class S>
__device__ __forceinline__ void pack_powers(const float (&scores)[S::KEYS / 8][4], uint32_t (&powers)[S::KEYS / 16][4])
{
#pragma unroll
    for (int p = 0; p < S::KEYS / 16; p++) {
        powers[p][0] = pack(scores[2 * p][0], scores[2 * p][1], T());
        powers[p][1] = pack(scores[2 * p][2], scores[2 * p][3], T());
        powers[p][2] = pack(scores[2 * p + 1][0], scores[2 * p + 1][1], T());
        powers[p][3] = pack(scores[2 * p + 1][2], scores[2 * p + 1][3], T());
    }
}

/* Scaling by 1 changes nothing, and is usual once a few keys have been seen. */
template <int HEAD_DIM>
__device__ __forceinline__ void shrink_some(attention_strip<HEAD_DIM> *strip, const float (&shrink)[2])
{
    if (__any_sync(0xffffffffu, shrink[0] != 1.0f || shrink[1] != 1.0f)) { strip_shrink(strip, shrink); }
}

/* This warp does not need the place any more. */
__device__ __forceinline__ void place_release(mbarrier *empty)
{
    __syncwarp();
    if (lane_id() == 0) { mbarrier_arrive(empty); }
}

/* Passes steps of which this warpgroup needs no key. */
template <class S>
__device__ __forceinline__ void steps_skip(wgmma_memory<S> *memory, wgmma_turn<S::STAGES> *turn, int count)
{
    for (; count > 0; count--, turn->next()) {
        mbarrier_wait(&memory->step_use[turn->at].full, turn->parity);
        place_release(&memory->step_use[turn->at].empty);
    }
}

/* Processes steps from the one at `key` on towards the row's start, one after the other. */
template <class T, class S, int VIEW>
__device__ __forceinline__ void attend_plainly(const attention_row<T> &row, int first, int key, int steps,
                                               const uint4 *queries, attention_strip<S::HEAD_DIM> *strip,
                                               wgmma_memory<S> *memory, wgmma_turn<S::STAGES> *turn)
{
    for (; steps > 0; steps--, key -= S::KEYS, turn->next()) {
        const wgmma_step<S> &step = memory->steps[turn->at];
        float scores[S::KEYS / 8][4], shrink[2];
        uint32_t powers[S::KEYS / 16][4];
        mbarrier_wait(&memory->step_use[turn->at].full, turn->parity);
        start_scores<T, S>(*strip, queries, step.keys, scores);
        wgmma_wait<0>();
        wgmma_hold(scores);
        if (key + S::KEYS > row.length) {
            powers_of<T, S, VIEW, false>(row, first, key, strip, scores, shrink);
        } else {
            powers_of<T, S, VIEW, true>(row, first, key, strip, scores, shrink);
        }
        shrink_some(strip, shrink);
        pack_powers<T, S>(scores, powers);
        start_values<T, S>(strip, step.values, powers);
        wgmma_wait<0>();
        wgmma_hold(strip->out);
        wgmma_hold(powers);
        place_release(&memory->step_use[turn->at].empty);
    }
}

/* The same, but the products of a step's values overlap with the next step's powers. The branch over the wait is what
 * keeps ptxas from moving the wait before the powers. */
template <class T, class S, int VIEW>
__device__ __forceinline__ void attend_ahead(const attention_row<T> &row, int first, int key, int steps,
                                             const uint4 *queries, attention_strip<S::HEAD_DIM> *strip,
                                             wgmma_memory<S> *memory, wgmma_turn<S::STAGES> *turn)
{
    float scores[S::KEYS / 8][4], shrink[2];
    uint32_t powers[S::KEYS / 16][4];
    mbarrier_wait(&memory->step_use[turn->at].full, turn->parity);
    start_scores<T, S>(*strip, queries, memory->steps[turn->at].keys, scores);
    wgmma_wait<0>();
    wgmma_hold(scores);
    powers_of<T, S, VIEW, false>(row, first, key, strip, scores, shrink);
    pack_powers<T, S>(scores, powers);
    int before = turn->at;
    turn->next();
    for (steps--, key -= S::KEYS; steps > 0; steps--, key -= S::KEYS) {
        mbarrier_wait(&memory->step_use[turn->at].full, turn->parity);
        start_scores<T, S>(*strip, queries, memory->steps[turn->at].keys, scores);
        start_values<T, S>(strip, memory->steps[before].values, powers);
        wgmma_wait<1>();
        wgmma_hold(scores);
        powers_of<T, S, VIEW, true>(row, first, key, strip, scores, shrink);
        wgmma_hold(scores);
        if (__any_sync(0xffffffffu, shrink[0] != 1.0f || shrink[1] != 1.0f)) {
            wgmma_wait<0, 1>();
            wgmma_hold(strip->out);
            strip_shrink(strip, shrink);
        } else {
            wgmma_wait<0, 2>();
        }
        wgmma_hold(strip->out);
        wgmma_hold(powers);
        place_release(&memory->step_use[before].empty);
        pack_powers<T, S>(scores, powers);
        before = turn->at;
        turn->next();
    }
    start_values<T, S>(strip, memory->steps[before].values, powers);
    wgmma_wait<0>();
    wgmma_hold(strip->out);
    wgmma_hold(powers);
    place_release(&memory->step_use[before].empty);
}

template <class T, class S, int VIEW>
__device__ __forceinline__ void attend_all(const struct kernel_attention_args &a, uint32_t units,
                                           wgmma_memory<S> *memory)
{
    const int group = static_cast<int>(threadIdx.x / WARPGROUP), warp = static_cast<int>(threadIdx.x / WARP % 4);
    wgmma_turn<S::STAGES> turn;
    wgmma_turn<S::SPANS> place;
    for (uint32_t round = 0; round_unit(round) < units; round++, place.next()) {
        const uint32_t unit = round_unit(round);
        wgmma_use *use = &memory->span_use[place.at];
        mbarrier_wait(&use->full, place.parity);
        const struct kernel_strip span = memory->spans[place.at];
        const uint4 *queries = memory->queries[place.at].of_group[group];
        const attention_row<T> row = attention_row_of<T, S::HEAD_DIM, VIEW>(a, span, unit % a.heads);
        const int all_first = static_cast<int>(span.first), begin = first_key<VIEW>(row, all_first);
        const int all = count_steps<S>(begin, end_key<VIEW>(row, all_first + S::SPAN_QUERIES));
        const int mine = all_first + GROUP_QUERIES * group, first = mine + KERNEL_STRIP_QUERIES * warp;
        if (mine >= row.length) {
            place_release(&use->empty);
            steps_skip(memory, &turn, all);
            continue;
        }
        const int from = all - count_steps<S>(begin, end_key<VIEW>(row, mine + GROUP_QUERIES));
        const int to = all - (first_key<VIEW>(row, mine) - begin) / S::KEYS;
        attention_strip<S::HEAD_DIM> strip;
        queries_load<T, S>(&strip, queries);
        if (!S::SHARED_QUERIES) { place_release(&use->empty); }
        steps_skip(memory, &turn, from);
        if (S::OVERLAP) {
            attend_ahead<T, S, VIEW>(row, first, begin + (all - 1 - from) * S::KEYS, to - from, queries, &strip, memory,
                                     &turn);
        } else {
            attend_plainly<T, S, VIEW>(row, first, begin + (all - 1 - from) * S::KEYS, to - from, queries, &strip,
                                       memory, &turn);
        }
        if (S::SHARED_QUERIES) { place_release(&use->empty); }
        steps_skip(memory, &turn, all - to);
        strip_end(strip, row, first);
    }
}

/* Block b of n takes units (span, head) as attention_tiles does. */
template <class T, class S, int VIEW>
__global__ void __launch_bounds__(S::THREADS, S::BLOCKS) attention_spans(KERNEL_ARGS(struct kernel_attention_args, a))
{
    SHARED_DYNAMIC(wgmma_memory<S>, memory);
    const uint32_t units = min(a.ragged.counts[KERNEL_COUNT_SPANS], a.bound) * a.heads;
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::STAGES + S::SPANS; i++) {
            wgmma_use &use = i < S::STAGES ? memory->step_use[i] : memory->span_use[i - S::STAGES];
            mbarrier_begin(&use.full, WARPGROUP);
            mbarrier_begin(&use.empty, 4 * S::GROUPS);
        }
    }
    __syncthreads();
    if (threadIdx.x >= S::GROUPS * WARPGROUP) {
        registers_drop<S::COPYING>();
        copy_all<T, S, VIEW>(a, units, memory);
    } else {
        registers_raise<S::ATTENDING>();
        attend_all<T, S, VIEW>(a, units, memory);
    }
}

/* --- on the host --- */

template <class T, int HEAD_DIM>
static cudaError_t launch_spans(const struct kernel_queue *queue, const struct kernel_attention_args *args)
{
    typedef wgmma_plan<HEAD_DIM> S;
    auto *kernel = attention_view_of(args) == ATTENTION_WINDOW ? attention_spans<T, S, ATTENTION_WINDOW>
                                                               : attention_spans<T, S, ATTENTION_ALL>;
    if constexpr (HEAD_DIM >= 128) {
        if (args->bias != nullptr) { kernel = attention_spans<T, S, ATTENTION_BIASED>; }
    }
    const uint64_t units = static_cast<uint64_t>(args->bound) * args->heads;
    const uint64_t blocks = std::min<uint64_t>(units, static_cast<uint64_t>(queue->multiprocessors) * S::BLOCKS);
    const cudaError_t answer = KERNEL_ALLOW_SHARED(reinterpret_cast<const void *>(kernel), sizeof(wgmma_memory<S>));
    if (answer != cudaSuccess) { return answer; }
    return kernel_enqueue(queue, kernel, dim3(static_cast<uint32_t>(blocks)), S::THREADS, sizeof(wgmma_memory<S>),
                          args);
}

template <class T>
static cudaError_t launch_type(const struct kernel_queue *queue, const struct kernel_attention_args *args)
{
    switch (args->head_dim) {
    case 32:
        return launch_spans<T, 32>(queue, args);
    case 64:
        return launch_spans<T, 64>(queue, args);
    case 128:
        return launch_spans<T, 128>(queue, args);
    default:
        return launch_spans<T, 256>(queue, args);
    }
}

extern "C" struct kernel_span kernel_attention_span(uint32_t capability, enum kernel_type type, uint32_t head_dim,
                                                    uint32_t biased)
{
    if (capability != 90 || (type != KERNEL_F16 && type != KERNEL_BF16) || (biased != 0 && head_dim < 128)) {
        return {0, 0};
    }
    switch (head_dim) {
    case 32: /* up to 64 tokens attention.cu is faster, with a bias perhaps always: that would spill registers here */
        return {wgmma_plan<32>::SPAN_QUERIES, 64};
    case 64:
        return {wgmma_plan<64>::SPAN_QUERIES, 64};
    case 128:
        return {wgmma_plan<128>::SPAN_QUERIES, 0};
    case 256:
        return {wgmma_plan<256>::SPAN_QUERIES, 0};
    default:
        return {0, 0};
    }
}

cudaError_t attention_wgmma(const struct kernel_queue *queue, const struct kernel_attention_args *args)
{
    return args->type == KERNEL_F16 ? launch_type<__half>(queue, args) : launch_type<__nv_bfloat16>(queue, args);
}
