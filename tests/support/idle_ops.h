/* The ops of a forward pass in which a backend for tests need not do anything. */
#ifndef TESTS_IDLE_OPS_H
#define TESTS_IDLE_OPS_H

#include "engine/backend.h"

static inline enum status idle_linear(struct backend_workspace *stream, uint32_t layer, enum linear_site site,
                                      struct err *err)
{
    (void)stream, (void)layer, (void)site, (void)err;
    return STATUS_OK;
}

static inline enum status idle_attention(struct backend_workspace *stream, uint32_t layer, struct err *err)
{
    (void)stream, (void)layer, (void)err;
    return STATUS_OK;
}

static inline enum status idle_norm(struct backend_workspace *stream, uint32_t layer, enum norm_site site,
                                    struct err *err)
{
    (void)stream, (void)layer, (void)site, (void)err;
    return STATUS_OK;
}

static inline enum status idle_pool(struct backend_workspace *stream, struct err *err)
{
    (void)stream, (void)err;
    return STATUS_OK;
}

#endif
