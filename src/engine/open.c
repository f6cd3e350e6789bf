/* Opens an engine after what its options leave open is decided: the backend, the precision, and the products in int8.
 * The last two are measured on engines, so this is above encoder.c. */
#include "engine/auto_precision.h"
#include "engine/encoder.h"
#include "engine/int8_choice.h"

enum status engine_open(const struct model *model, const struct engine_options *options, struct engine **out,
                        struct err *err)
{
    const struct backend_ops *ops;
    struct err passed_over;
    struct engine_options chosen = options ? *options : (struct engine_options){0};
    TRY(backend_find(chosen.backend, chosen.precision, model, &ops, &passed_over, err));
    if (chosen.precision == PRECISION_AUTO) {
        TRY(backend_choose(ops, model, PRECISION_AUTO, &chosen.precision, err));
        if (ops->measures) { TRY(auto_precision(ops, model, &chosen, chosen.precision, &chosen.precision, err)); }
    }
    bool chooses = precision_is_int8(chosen.precision) && ops->set_int8;
    TRY((chooses ? int8_open : engine_open_with)(ops, model, &chosen, out, err));
    (*out)->passed_over = passed_over;
    return STATUS_OK;
}
