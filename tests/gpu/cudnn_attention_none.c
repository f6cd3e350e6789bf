/* A build that found no header of a cuDNN that is new enough. */
#include "cudnn_attention.h"

#include <stddef.h>

enum status cudnn_attention_open(const struct cudnn_attention_shape *shape, cudaStream_t stream,
                                 struct cudnn_attention **out, struct err *err)
{
    (void)shape;
    (void)stream;
    *out = NULL;
    return err_set(err, STATUS_UNSUPPORTED,
                   "built without cuDNN's headers (9.13 or newer; cmake -DSLUICE_CUDNN_INCLUDE=...)");
}

void cudnn_attention_close(struct cudnn_attention *attention)
{
    (void)attention;
}

enum status cudnn_attention_run(struct cudnn_attention *attention, const void *qkv, void *context, struct err *err)
{
    (void)attention;
    (void)qkv;
    (void)context;
    return err_set(err, STATUS_UNSUPPORTED, "built without cuDNN's headers");
}
