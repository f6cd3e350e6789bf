/* From a request's texts to its rows' token ids, or to the reply of a request for its tokens. */
#ifndef SCHEDULE_PREPARE_H
#define SCHEDULE_PREPARE_H

#include "model/model.h"
#include "schedule/request.h"

/* Tokenises every row of a request (with its prompt, or else the model's, before each text) and allocates its vectors:
 * this is the work of a prep thread for ACTION_PREPARE. For TASK_TOKENIZE it writes request->reply instead. The first
 * bad text gives the request its code and message (too_long if `truncate` is off, out_of_memory, bad_utf8). Thread:
 * any, one per request; the model is only read. */
void prepare_request(struct request *request, const struct model *model);

#endif
