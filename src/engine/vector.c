/* Normalising is one function and not each backend's own: who wants vectors as they were pooled (a request may ask for
 * fewer floats, or for no normalising) gets the same bits by doing it later. */
#include "engine/vector.h"

#include <math.h>

/* The sum of squares in f64, in order. */
void vector_normalize(float *vector, uint32_t dim)
{
    double squares = 0;
    for (uint32_t i = 0; i < dim; i++)
        squares += (double)vector[i] * vector[i];
    float scale = (float)(1.0 / fmax(sqrt(squares), 1e-12));
    for (uint32_t i = 0; i < dim; i++)
        vector[i] *= scale;
}
