/* What the files of the queue do for each other.
 *
 *   queue.c          state, connections, backoff         queue_refused.c  what an error reply leads to
 *   queue_task.c     keys, tasks, outbox
 *   queue_join.c     from connected to EVENT_CONNECTED   queue_groups.c   the groups of the three streams
 *   queue_read.c     READ, READ_OWN                      queue_claim.c    RECLAIM, SHED, FAIR, SWEEP
 *   queue_deliver.c  SETTLE, CHARGE, TRACK               queue_settle.c, queue_defer.c   the words of their scripts
 *   queue_stage.c    large replies, ahead of their SETTLE
 *   queue_cancel.c   cancels among the SETTLEs           queue_control.c  cancels of the control stream
 *   queue_release.c  RELEASE
 *   queue_lease.c    RENEW, PROMOTE, MEND, UNBLOCK       queue_pulse.c    PULSE
 *
 * A function that executes an action takes it over as a task, which ends with exactly one event: the answer, or
 * `failed` when the command could not be sent, was refused, or died with its connection. Nothing else is returned. */
#ifndef IO_QUEUE_PARTS_H
#define IO_QUEUE_PARTS_H

#include "io/queue_private.h"

/* --- queue_task.c: tasks and events --- */

/* Which source the entries that answer an action have. */
enum read_source queue_source(enum action_kind kind);

/* Takes an action over as a task. Owns: the task is the queue's until it ends. Errors: NULL when the queue is not up or
 * memory ran out; the action's failure is on its way then. */
struct task *queue_task_open(struct queue *queue, struct action *action);

/* Ends a task with `failed`; requests that were answered already go back with the others. */
void queue_task_fail(struct task *task);

/* Ends a task with an event, which may lie in it. */
void queue_task_done(struct task *task, const struct event *event);

/* Ends a task without an event: the caller delivers it. */
void queue_task_end(struct task *task);

/* Puts an event into the outbox: it is delivered from the event loop. */
void queue_emit(struct queue *queue, const struct event *event);

/* Delivers an event at once, for one that points into an answer of Redis. From the event loop only. */
void queue_deliver_now(struct queue *queue, const struct event *event);

/* Delivers what waits in the outbox: all events, then a disconnect, then the end. */
void queue_on_outbox(int fd, short what, void *queue);

/* --- queue_task.c: keys and calls --- */

/* The key sluice:{queue}:SUFFIX MORE, written to `key`; returns `key`. */
const char *queue_key(const struct queue *queue, const char *suffix, const char *more, char key[QUEUE_KEY_MAX]);

/* The key of a class's stream. */
const char *queue_stream(const struct queue *queue, enum request_class class);

/* Appends such a key, a stream's key, or an entry id, to a command. */
void queue_add_key(const struct queue *queue, struct command *command, const char *suffix, const char *more);
void queue_add_stream(const struct queue *queue, struct command *command, enum request_class class);
void queue_add_entry_id(struct command *command, struct entry_id id);

/* Sends a script's call with the queue's timeout. Owns: takes the command's bytes. False: nothing was sent, no callback
 * comes. */
MUST_CHECK bool queue_call(struct queue *queue, struct command *command, connection_reply_fn *reply, void *context);

/* --- queue.c --- */

/* Closes both connections and plans the next try, with a backoff; where `err` is STATUS_DENIED it stops. All tasks fail
 * before it returns. */
void queue_down(struct queue *queue, const struct err *err);

/* Closes both connections for good; on_fatal comes from the event loop. All tasks fail before it returns. */
void queue_stop(struct queue *queue, const struct err *err);

/* The pause before the next try: backoff_ms doubled for each try before, at most the cap; without jitter. */
uint64_t queue_backoff_ms(const struct queue *queue, unsigned tries);

/* Sets a timer of the event loop. */
void queue_wake_in(struct event *timer, uint64_t wait_ms);

/* --- queue_refused.c --- */

/* Deals with the error reply of a command: no rights: stops the queue; cannot serve now: disconnects; the group is
 * missing: makes it again. True when `reply` was an error. */
bool queue_refused(struct queue *queue, const struct resp_value *reply, const char *what);

/* Where the reply is MOVED: lets the next connect go there. */
void queue_follow(struct queue *queue, const struct resp_value *reply);

/* --- queue_join.c --- */

/* The writer is connected: asks what the server is, loads the scripts, takes the name. */
void queue_join_writer(struct queue *queue);

/* The reader is connected: asks for its id. Whichever is later reports EVENT_CONNECTED. */
void queue_join_reader(struct queue *queue);

/* ACTION_REJOIN: takes a new name and joins with it, now or at the next connect. */
void queue_rejoin(struct queue *queue);

/* Makes up a new name and a new token. */
void queue_take_name(struct queue *queue);

/* The precision that this worker computes in: "f32". */
const char *queue_precision(const struct queue *queue);

/* Finds `name:value` at the beginning of a line of INFO. Shapes: value [size], written when it is there. */
bool queue_info_field(const char *info, const char *name, char *value, size_t size);

/* --- queue_groups.c --- */

/* Makes the groups that are missing, and looks again at keys of a wrong type. */
void queue_create_groups(struct queue *queue);

/* Whether a class can be served: false while a key of another type stands where its stream belongs. */
bool queue_serves(const struct queue *queue, enum request_class class);

/* The timer of group_retry. */
void queue_on_group_retry(int fd, short what, void *queue);

/* --- queue_read.c --- */

/* Execute ACTION_READ and ACTION_READ_OWN. */
void queue_read(struct queue *queue, struct action *action);
void queue_read_own(struct queue *queue, struct action *action);

/* Answers a task with what queue->entries holds. */
void queue_give_entries(struct task *task);

/* Answers a task with no entries. */
void queue_give_nothing(struct task *task);

/* Fails a task and disconnects: an answer of a shape that no Redis gives. */
void queue_give_up(struct task *task, const struct err *err);

/* --- queue_claim.c --- */

/* Execute ACTION_RECLAIM, ACTION_SHED, ACTION_FAIR and ACTION_SWEEP. */
void queue_reclaim(struct queue *queue, struct action *action);
void queue_shed(struct queue *queue, struct action *action);
void queue_fair(struct queue *queue, struct action *action);
void queue_sweep(struct queue *queue, struct action *action);

/* --- queue_deliver.c --- */

/* Execute ACTION_SETTLE, ACTION_CHARGE and ACTION_TRACK. */
void queue_settle(struct queue *queue, struct action *action);
void queue_charge(struct queue *queue, struct action *action);
void queue_track(struct queue *queue, struct action *action);

/* Logs how many refusals were not logged one by one; from now on some are again. */
void queue_tell_refusals(struct queue *queue);

/* One of a task's calls is over, with a verdict for each of these requests; the last one answers the task. */
void queue_answered(struct task *task, struct request_list *requests);

/* --- queue_cancel.c --- */

/* Makes the calls for one request of OUTCOME_CANCEL; ends with queue_answered, also when it could not be sent. */
void queue_cancel(struct task *task, struct request *request);

/* Likewise for an entry of the control stream; ends with queue_control_cancelled. `target`: a request's name, "" for an
 * entry that has none and only goes. */
void queue_cancel_from_control(struct queue *queue, struct entry_id entry, const char *target);

/* --- queue_control.c --- */

/* The queue is up: looks at the control stream from now on. */
void queue_control_start(struct queue *queue);

/* The timer of the next look. */
void queue_on_control(int fd, short what, void *queue);

/* One of its cancels is over; with VERDICT_AGAIN its entry is still there. */
void queue_control_cancelled(struct queue *queue, enum verdict verdict);

/* --- queue_settle.c, queue_defer.c --- */

/* Writes a whole call of lua/settle, defer, charge or track for these requests, which are of one class and at least
 * one. Errors: the command's buffer is broken. */
void queue_write_settle(const struct queue *queue, const struct request_list *requests, struct command *command);
void queue_write_defer(const struct queue *queue, const struct request_list *requests, struct command *command);
void queue_write_charge(const struct queue *queue, const struct request_list *requests, struct command *command);
void queue_write_track(const struct queue *queue, const struct request_list *requests, struct command *command);

/* Appends the names and values of a reply's fields, but for those that the script adds. */
void queue_add_fields(const struct queue *queue, struct command *command, const struct request *request);

/* --- queue_stage.c --- */

/* Sends the large ones of these replies, so that the settle that follows need not carry them; those have `staged` set.
 * What Redis refuses is found out by the script. False: they could not be sent, and the queue is down. */
bool queue_stage(struct queue *queue, const struct request_list *requests);

/* Appends the key at which a request's reply is staged. */
void queue_add_stage_key(const struct queue *queue, struct command *command, const struct request *request);

/* The script has missed a stage key: for a while replies go with their settle again. */
void queue_not_staged(struct queue *queue);

/* --- queue_release.c, queue_lease.c, queue_pulse.c --- */

/* Execute ACTION_RELEASE, ACTION_RENEW, ACTION_PROMOTE, ACTION_MEND and ACTION_PULSE. */
void queue_release(struct queue *queue, struct action *action);
void queue_renew(struct queue *queue, struct action *action);
void queue_promote(struct queue *queue, struct action *action);
void queue_mend(struct queue *queue, struct action *action);
void queue_pulse(struct queue *queue, struct action *action);

/* A request has ended, with a code, CODE_NONE (done) or END_CANCELLED: counted in Redis with the next pulse. */
void queue_count(struct queue *queue, enum request_class class, int end);

/* Has what was not counted yet counted ahead of what is sent next: the worker leaves, and there is no next pulse. */
void queue_count_last(struct queue *queue);

/* Executes ACTION_UNBLOCK, which no event answers: where it fails, the read blocks until its time is over. */
void queue_unblock(struct queue *queue);

#endif
