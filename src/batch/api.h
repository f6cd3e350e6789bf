/* The Files and Batches API of OpenAI, over a folder (batch/store.h).
 *
 * Calls are answered on a thread of their own, because they wait for the disk; another thread runs batches, one at a
 * time, as bulk jobs through a queue (batch/run.h). Everything that was answered survives a kill, and any gateway that
 * has the folder goes on with a batch whose owner has died: the owner holds a lock, which its end gives back. */
#ifndef BATCH_API_H
#define BATCH_API_H

#include "gateway/gateway.h"

/* Serves /v1/files and /v1/batches on a gateway that has a folder. */
extern const struct gateway_extension batches_extension;

#endif
