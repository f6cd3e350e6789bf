/* What lua/defer, lua/charge and lua/track are told of each request. */
#include "io/queue_parts.h"

void queue_write_defer(const struct queue *queue, const struct request_list *requests, struct command *command)
{
    char class[2] = {(char)('0' + requests->first->class), '\0'};
    script_begin(&queue->scripts, SCRIPT_DEFER, 5, command);
    queue_add_stream(queue, command, requests->first->class);
    queue_add_key(queue, command, "later", "");
    queue_add_key(queue, command, "later:data", "");
    queue_add_key(queue, command, "trouble", "");
    queue_add_key(queue, command, "meta", "");
    command_text(command, queue->worker);
    command_text(command, class);
    for (const struct request *request = requests->first; request; request = request->next) {
        queue_add_entry_id(command, request->entry);
        command_text(command, request->name);
        command_text(command, request->borrowed_name ? "1" : "0");
        command_number(command, request->next_attempt);
        command_number(command, request->due_ms);
        command_number(command, request->due_at_ms);
    }
}

void queue_write_charge(const struct queue *queue, const struct request_list *requests, struct command *command)
{
    script_begin(&queue->scripts, SCRIPT_CHARGE, 2, command);
    queue_add_stream(queue, command, requests->first->class);
    queue_add_key(queue, command, "trouble", "");
    command_text(command, queue->worker);
    command_text(command, requests->first->alone ? "alone" : "group");
    for (const struct request *request = requests->first; request; request = request->next) {
        queue_add_entry_id(command, request->entry);
        command_text(command, request->name);
        command_text(command, request->borrowed_name ? "1" : "0");
        command_number(command, request->attempt);
    }
}

void queue_write_track(const struct queue *queue, const struct request_list *requests, struct command *command)
{
    script_begin(&queue->scripts, SCRIPT_TRACK, 1 + requests->count, command);
    queue_add_stream(queue, command, requests->first->class);
    for (const struct request *request = requests->first; request; request = request->next) {
        queue_add_key(queue, command, "reply:", request->id);
    }
    for (const struct request *request = requests->first; request; request = request->next) {
        queue_add_entry_id(command, request->entry);
        command_text(command, request->name);
        /* When the reply may go away unanswered: its ttl after it is due. */
        command_number(command, request->due_ms + request->ttl_s * 1000ull);
    }
}
