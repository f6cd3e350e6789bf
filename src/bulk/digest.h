/* The digest of a job's input, and the comparison of its documents with those of an earlier run. Private to the job's
 * files. */
#ifndef BULK_DIGEST_H
#define BULK_DIGEST_H

#include <stdio.h>

#include "bulk/failures.h"
#include "bulk/job_internal.h"

/* The results of an earlier run, read in step with its documents. */
struct comparison {
    struct failure_list list;
    FILE *hashes;         /* NULL: there are none, and only the digest shows whether the input has changed */
    const char *obstacle; /* why no document may have changed; NULL: a document may, if its id has not */
    bool lists;           /* write a list that has the changed documents, too: */
    struct append_file new_list;
    char *new_path;
    uint64_t failed, copied; /* listed rows, and other rows that are copies */
};

/* The fingerprint of a document as the source gives it, without FINGERPRINT_COPIED. */
struct fingerprint job_fingerprint(const struct document *document);

/* Adds a document to a digest. All failed ones count alike: they have no vector that their bytes could contradict. */
void job_digest_add(XXH3_state_t *digest, const struct document *document);

/* The digest of all documents that were read so far. */
struct hash job_digest_now(const struct job *job);

/* Begins a comparison with a run of `documents`, of which some rows `failed`. The caller ends it with comparison_close,
 * also after an error. */
MUST_CHECK enum status comparison_open(const struct job *job, uint64_t documents, uint64_t failed,
                                       struct comparison *with, struct err *err);

/* Closes its files. A new list that was not adopted stays. */
void comparison_close(struct comparison *with);

/* Finds out whether the next document has changed. Errors: STATUS_BAD_INPUT: it has, but may not. */
MUST_CHECK enum status comparison_check(const struct job *job, struct comparison *with, const struct document *document,
                                        bool *changed, struct err *err);

/* Compares a document that is not computed again, adds it to the digest and, if the comparison lists, to the new list.
 * Errors: those of comparison_check, failure_list_next and append_file_flush. */
MUST_CHECK enum status comparison_reread(struct job *job, struct comparison *with, const struct document *document,
                                         struct err *err);

#endif
