/* Source: the behaviour of the WordPiece model in tokenizers 0.23: if no entry matches at some place, the whole word is
 * unknown.
 */
#include "tokenizer/wordpiece.h"

void wordpiece_encode(const struct wordpiece *model, const char *word, size_t length, size_t characters,
                      struct id_sink *sink)
{
    size_t first = sink->count;
    if (characters > model->max_characters) {
        id_sink_put(sink, model->unknown, word, length);
        return;
    }
    int32_t node = TRIE_ROOT;
    for (size_t at = 0, matched = 0; at < length; at += matched, node = model->continuing) {
        int32_t id = trie_longest(model->vocabulary, node, word + at, length - at, &matched);
        if (id == TRIE_NONE) {
            sink->count = first;
            id_sink_put(sink, model->unknown, word, length);
            return;
        }
        id_sink_put(sink, id, word + at, matched);
    }
}
