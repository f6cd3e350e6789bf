/* An engine on the fake backend with one encoder, as most tests of the engine need it. */
#ifndef TESTS_FAKE_ENGINE_H
#define TESTS_FAKE_ENGINE_H

#include "fake_backend.h"
#include "harness.h"

#include "engine/engine.h"

struct opened {
    struct engine *engine;
    struct encoder *encoder;
};

static inline struct opened open_fake_with(const struct backend_ops *ops, const struct model *model,
                                           struct engine_options options)
{
    struct opened opened;
    struct err err = {0};
    assert_int_equal(engine_open_with(ops, model, &options, &opened.engine, &err), STATUS_OK);
    assert_int_equal(encoder_open(opened.engine, &opened.encoder, &err), STATUS_OK);
    return opened;
}

static inline struct opened open_fake(const struct model *model, enum precision precision)
{
    return open_fake_with(&fake_backend, model, (struct engine_options){.precision = precision});
}

/* Nothing of it may be left. */
static inline void close_fake(struct opened *opened)
{
    encoder_close(opened->encoder);
    engine_close(opened->engine);
    assert_int_equal(fake.opened, 0);
    assert_int_equal(fake.streams, 0);
}

#endif
