/* The choice of a model's layers for int8: as many as its accuracy allows, from the last one on. */
#include "harness.h"

#include <math.h>

#include "engine/cpu/pack.h"
#include "memory_model.h"

enum { DEEP = 12 };

static const struct memory_shape shallow = {100, 48, 64, 2, 2, 128};
static const struct memory_shape deep = {100, 48, 64, DEEP, 2, 128};
static const struct memory_shape deep_and_odd = {50, 40, 36, DEEP, 3, 70}; /* not for tiles */

/* The model's first layer in that precision; frees the model. */
static uint32_t first_int8_layer(struct model *model, enum precision precision, size_t *bytes)
{
    struct cpu_weights *weights;
    struct err err = {0};
    assert_int_equal(cpu_weights_open(model, precision, &weights, &err), STATUS_OK);
    uint32_t first = weights->first_int8_layer;
    *bytes = weights->bytes;
    cpu_weights_close(weights);
    memory_model_free(model);
    return first;
}

TEST(other_precisions_take_none)
{
    size_t bytes;
    assert_int_equal(first_int8_layer(memory_model(deep, 1), PRECISION_F32, &bytes), DEEP);
}

TEST(a_shallow_model_is_all_in_int8)
{
    size_t bytes;
    assert_int_equal(first_int8_layer(memory_model(shallow, 2), PRECISION_INT8, &bytes), 0);
}

TEST(the_first_layers_of_a_deep_model_are_left_out)
{
    size_t bytes;
    for (uint64_t seed = 4; seed < 7; seed++) {
        uint32_t first = first_int8_layer(memory_model(deep, seed), PRECISION_INT8, &bytes);
        uint32_t odd = first_int8_layer(memory_model(deep_and_odd, seed), PRECISION_INT8, &bytes);
        assert_true(first > 0 && first < DEEP && odd > 0 && odd < DEEP);
    }
}

/* Scales down what layers add to their input, and with it their roundings. */
static void damp(struct model *model, float by)
{
    for (uint32_t layer = 0; layer < model->layer_count; layer++) {
        const struct tensor *weights[] = {&model->layers[layer].attention_output.weight,
                                          &model->layers[layer].output.weight};
        for (unsigned w = 0; w < 2; w++) {
            for (size_t i = 0; i < weights[w]->elements; i++) { ((float *)(uintptr_t)weights[w]->data)[i] *= by; }
        }
    }
}

TEST(what_counts_is_rounding_and_not_depth)
{
    struct model *model = memory_model(deep, 3);
    size_t all, some;
    damp(model, 0.1f);
    assert_int_equal(first_int8_layer(model, PRECISION_INT8, &all), 0);
    assert_true(first_int8_layer(memory_model(deep, 3), PRECISION_INT8, &some) > 0);
    assert_true(some > all); /* int8 is smaller than any other precision of a layer */
}

/* Nothing is near a model that is not finite, and yet it opens: its rows that are not finite are handled elsewhere. */
TEST(a_model_that_is_not_finite_has_no_layer_in_int8)
{
    struct model *model = memory_model(shallow, 7);
    size_t bytes;
    ((float *)(uintptr_t)model->layers[1].output.weight.data)[5] = NAN;
    assert_int_equal(first_int8_layer(model, PRECISION_INT8, &bytes), 2);
}
