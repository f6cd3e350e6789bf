/* Carries weights to the device: read from the model's tensors, changed on the way, narrowed to the device's type, and
 * copied while the next piece is made ready.
 * Errors, of all: STATUS_NO_MEMORY, STATUS_DEVICE_LOST, STATUS_INTERNAL (see cuda_check). */
#ifndef ENGINE_CUDA_UPLOAD_H
#define ENGINE_CUDA_UPLOAD_H

#include "engine/cuda_api.h"
#include "kernels/kernels.h"
#include "model/model.h"

struct cuda_upload;

/* Makes a stream and pinned memory for an upload. Owns: the caller ends it with cuda_upload_close. */
MUST_CHECK enum status cuda_upload_open(const struct cuda_api *api, struct cuda_upload **out, struct err *err);

/* Waits for what is on its way; nothing more can be put. */
MUST_CHECK enum status cuda_upload_finish(struct cuda_upload *upload, struct err *err);

/* Waits, whatever has failed, and frees. NULL is allowed. */
void cuda_upload_close(struct cuda_upload *upload);

/* Copies f32 values times `scale` in the given type. Shapes: values [count], free again when it returns; to [count] in
 * device memory. */
MUST_CHECK enum status cuda_upload_values(struct cuda_upload *upload, enum kernel_type type, const float *values,
                                          size_t count, float scale, void *to, struct err *err);

/* The same for `count` elements of a tensor from `first` on. */
MUST_CHECK enum status cuda_upload_tensor(struct cuda_upload *upload, enum kernel_type type,
                                          const struct tensor *tensor, size_t first, size_t count, float scale,
                                          void *to, struct err *err);

#endif
