/* Writes the content of a reply. The outputs of computed rows become bytes: vectors are shortened, normalised and
 * encoded as the request asks, logits become scores. `info` says the rest. */
#ifndef SCHEDULE_REPLY_H
#define SCHEDULE_REPLY_H

#include <stddef.h>

#include "schedule/request.h"
#include "tokenizer/tokenizer.h"

/* A score with its place among the others. */
struct scored {
    uint32_t index;
    float score;
};

/* Sorts scores, best first, equal ones in their order. Owns: the caller frees it. NULL when memory ran out; `to` is
 * then broken, as if it could not grow. */
struct scored *reply_sort_scores(const float *scores, uint32_t count, struct buffer *to);

/* Appends the labels of one text, best first: [{"label":"joy","score":0.75},...]. Shapes: scores [head->labels]. */
void reply_put_labels(struct buffer *to, const struct model_head *head, const float *scores);

/* Appends a document's score, as {"index":0,"score":0.5}. */
void reply_put_score(struct buffer *to, uint64_t index, float score);

/* The name of the result's field in the reply: "embedding", "scores", "top", "labels", "tokens" or "text". */
const char *reply_field(const struct request *request);

/* Appends the tokens of a text: [{"id":7,"text":"joy","special":false,"start":0,"stop":3},...], at most up to
 * reply_room. False: there is no room, or no memory, and `to` is then broken. */
MUST_CHECK bool reply_put_tokens(struct buffer *to, const struct request *request, const struct tokenizer *tokenizer,
                                 const char *text, const struct tokenizer_token *tokens, uint32_t count);

/* Writes vectors, scores or labels of a computed request into request->reply: the work of a prep thread for
 * ACTION_FORMAT, once. NaN and infinity are never sent: their request fails with CODE_NON_FINITE, with CODE_BAD_REQUEST
 * if f16 cannot hold a float, or CODE_OUT_OF_MEMORY. Shapes: the rows' outputs are one array, [row_count, dim] f32, and
 * are overwritten. Owns: nothing. Thread: any, one per request. */
void reply_format(struct request *request);

/* The time from the first XADD to the first token of a text, in ms. */
double reply_first_token_ms(const struct request *request);

/* Appends the members of `info` that the request decides, each after a comma: those of a result for OUTCOME_DONE, else
 * those of an error. The times are the script's. */
void reply_put_info(struct buffer *to, const struct request *request);

/* Appends the members of `info` that are the same in all results of a queue, each after a comma. */
void reply_put_model_info(struct buffer *to, const char *model, const char *revision, const char *precision,
                          const char *engine);

/* TASK_GENERATE: the most tokens that the text may have. */
size_t reply_most_tokens(const struct request *request);

/* The bytes of a finished request's reply that depend on its length: the reply itself, and what `info` has of each
 * token. */
size_t reply_length(const struct request *request);

/* The most bytes that request->reply has once it is written. */
size_t reply_room(const struct request *request);

/* The most memory that request->reply takes once it is written. */
size_t reply_bound(const struct request *request);

#endif
