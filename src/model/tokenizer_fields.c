#include "model/tokenizer_fields.h"

#include <string.h>

enum status fields_only(const cJSON *object, const char *path, const char *const *known, struct err *err)
{
    if (!cJSON_IsObject(object))
        return err_set(err, STATUS_BAD_INPUT, "%s must be an object", path);
    const cJSON *child;
    cJSON_ArrayForEach(child, object)
    {
        size_t i = 0;
        while (known[i] != NULL && strcmp(known[i], child->string) != 0)
            i++;
        if (known[i] == NULL)
            return err_set(err, STATUS_UNSUPPORTED, "%s: the field %.100s is not known here", path, child->string);
    }
    return STATUS_OK;
}

enum status fields_need(const cJSON *object, const char *path, const char *field, const cJSON **value, struct err *err)
{
    *value = json_field(object, field);
    if (*value == NULL)
        return err_set(err, STATUS_BAD_INPUT, "%s: %s is missing", path, field);
    return STATUS_OK;
}

enum status fields_bool(const cJSON *object, const char *path, const char *field, bool *value, struct err *err)
{
    const cJSON *found;
    enum status status = fields_need(object, path, field, &found, err);
    return status == STATUS_OK ? json_bool(object, path, field, value, err) : status;
}

enum status fields_string(const cJSON *object, const char *path, const char *field, const char **value, struct err *err)
{
    const cJSON *found;
    enum status status = fields_need(object, path, field, &found, err);
    return status == STATUS_OK ? json_string(object, path, field, value, err) : status;
}

enum status fields_id(const cJSON *value, const char *path, int32_t *id, struct err *err)
{
    uint64_t number;
    if (!json_whole(value, &number) || number >= INT32_MAX)
        return err_set(err, STATUS_BAD_INPUT, "%s must be a whole number below %d", path, INT32_MAX);
    *id = (int32_t)number;
    return STATUS_OK;
}

enum status fields_type(const cJSON *object, const char *path, const char *expected, struct err *err)
{
    const char *type = "null";
    enum status status = object != NULL ? fields_string(object, path, "type", &type, err) : STATUS_OK;
    if (status == STATUS_OK && strcmp(type, expected) != 0)
        status = err_set(err, STATUS_UNSUPPORTED, "%s: type %.100s is not supported (%s is)", path, type, expected);
    return status;
}
