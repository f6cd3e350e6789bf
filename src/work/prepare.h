/* From a request's texts to its rows' token ids. */
#ifndef WORK_PREPARE_H
#define WORK_PREPARE_H

#include "model/model.h"
#include "work/request.h"

/* Tokenises every row of a request (its prompt, or else the model's, before each text) and makes room for its vectors:
 * what a prep thread does for ACTION_PREPARE. The first text that goes wrong gives the request code and message
 * (too_long when `truncate` is off, out_of_memory, bad_utf8). Thread: any, one per request; the model is only read. */
void prepare_request(struct request *request, const struct model *model);

#endif
