#include "cli/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void doctor_report(struct doctor *doctor, enum finding finding, const char *what, const char *format, ...)
{
    static const char *const words[] = {[FINDING_OK] = "ok", [FINDING_WARN] = "warn", [FINDING_FAIL] = "fail"};
    doctor->warned += finding == FINDING_WARN;
    doctor->failed += finding == FINDING_FAIL;
    printf("%-4s  %-11s ", words[finding], what);
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

const char *doctor_info(const struct doctor *doctor, const char *name, char value[64])
{
    value[0] = '\0';
    resp_info_field(session_text(doctor->info), name, value, 64);
    return value;
}

void doctor_setting(struct doctor *doctor, const char *name, char value[SETTING_MAX])
{
    const struct resp_value *reply;
    struct err err;
    value[0] = '\0';
    if (SESSION_ASK(&doctor->session, &reply, &err, "CONFIG", "GET", name) == STATUS_OK && reply->type == RESP_ARRAY &&
        reply->count == 2) {
        snprintf(value, SETTING_MAX, "%s", session_text(&reply->items[1]));
    }
}

enum { DOCTOR_WORDS = 16 };

enum status doctor_try(struct doctor *doctor, const char *user, const char *spelled, char answer[256], struct err *err)
{
    char copy[DOCTOR_COMMAND];
    const char *words[DOCTOR_WORDS] = {"ACL", "DRYRUN", user};
    size_t count = 3;
    snprintf(copy, sizeof copy, "%s", spelled);
    for (char *save, *word = strtok_r(copy, " ", &save); word != NULL && count < DOCTOR_WORDS;
         word = strtok_r(NULL, " ", &save)) {
        words[count++] = word;
    }
    const struct resp_value *reply;
    TRY(session_ask(&doctor->session, count, words, &reply, err));
    snprintf(answer, 256, "%s", reply->type == RESP_STATUS ? "" : session_text(reply));
    return STATUS_OK;
}
