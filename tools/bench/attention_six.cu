/* The attention kernel with six resident blocks at head dim 32, to compare with the shipped one in gpu_attention. */
#define ATTENTION_BLOCKS_32 6
#define kernel_attention kernel_attention_six
#include "kernels/attention.cu"
