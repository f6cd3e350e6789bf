/* The device of the tests of matrix products: the host's table in the default test run, a GPU in tests/gpu. */
#ifndef TESTS_PRODUCTS_DEVICE_H
#define TESTS_PRODUCTS_DEVICE_H

#include <stdbool.h>

#include "engine/cuda/api.h"

/* The table; device 0 is current. Ends the process where there is no device. */
const struct cuda_api *products_open(void);
void products_close(void);

/* Returns whether the tests may use the sizes of real models. */
bool products_large(void);

#endif
