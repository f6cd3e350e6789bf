/* Source: OpenAPI 3.1.1, whose schemas are JSON Schema 2020-12. */
#include "gateway/openapi.h"

#include <string.h>

#include "base/json.h"
#include "base/version.h"
#include "gateway/dialect.h"

/* Appends JSON in which ' stands for ". */
static void put_json(struct buffer *to, const char *json)
{
    char *start = buffer_reserve(to, strlen(json));
    if (!start) { return; }
    for (; *json; json++) { *start++ = (char)(*json == '\'' ? '"' : *json); }
    to->length = (size_t)(start - to->data);
}

/* --- Bodies of requests --- */

#define TEXT "{'type':'string','minLength':1}"

static void put_list(struct buffer *to, const char *items, int most)
{
    buffer_json(to, "{'type':'array','minItems':1,'maxItems':%d,'items':", most);
    put_json(to, items);
    buffer_string(to, "}");
}

/* The words of a member; an optional one may be null. */
static void put_words(struct buffer *to, const struct member *member, bool null)
{
    buffer_string(to, "{\"enum\":[");
    for (int i = 0; member->words[i]; i++) { buffer_json(to, ",%s", member->words[i]); }
    buffer_string(to, null ? ",null]}" : "]}");
}

static void put_type(struct buffer *to, const struct member *member)
{
    static const char one_in_a_list[] = "{'type':'array','minItems':1,'maxItems':1,'items':" TEXT "}";
    switch (member->kind) {
    case MEMBER_INPUT:
        put_json(to, "{'oneOf':[" TEXT ",");
        put_list(to, TEXT, CALL_TEXTS_MAX);
        buffer_string(to, "]}");
        break;
    case MEMBER_TEXTS:
        put_list(to, TEXT, CALL_TEXTS_MAX);
        break;
    case MEMBER_SEQUENCES:
        put_json(to, "{'oneOf':[" TEXT ",");
        put_json(to, one_in_a_list);
        buffer_string(to, ",");
        put_list(to, one_in_a_list, CALL_TEXTS_MAX);
        buffer_string(to, "]}");
        break;
    case MEMBER_DOCUMENTS:
        put_list(to, "{'oneOf':[" TEXT ",{'type':'object','required':['text'],'properties':{'text':" TEXT "}}]}",
                 CALL_TEXTS_MAX);
        break;
    case MEMBER_SIMILARITY:
        put_json(to, "{'type':'object','required':['source_sentence','sentences'],'properties':{'source_sentence':" TEXT
                     ",'sentences':");
        put_list(to, TEXT, CALL_TEXTS_MAX - 1);
        buffer_string(to, "}}");
        break;
    case MEMBER_STRING:
        put_json(to, TEXT);
        break;
    case MEMBER_NAME: /* the limit is one of bytes, of which a character has up to four */
        buffer_json(to, "{'type':['string','null'],'maxLength':%d}", CALL_NAME_MAX / 4);
        break;
    case MEMBER_COUNT:
        put_json(to, "{'type':['integer','null'],'minimum':1,'maximum':2147483647}");
        break;
    case MEMBER_FLAG:
        put_json(to, "{'type':['boolean','null']}");
        break;
    case MEMBER_WORDS:
        put_json(to, "{'type':['array','null'],'minItems':1,'items':");
        put_words(to, member, false);
        buffer_string(to, "}");
        break;
    case MEMBER_MESSAGES:
        put_json(to, "{'type':'array','minItems':1,'items':{'type':'object','required':['role','content'],"
                     "'properties':{'role':{'enum':['system','user','assistant']},'content':{'oneOf':["
                     "{'type':'string'},{'type':'array','minItems':1,'items':{'type':'object',"
                     "'required':['type','text'],'properties':{'type':{'const':'text'},"
                     "'text':{'type':'string'}}}}]}}}}");
        break;
    case MEMBER_NUMBER:
        put_json(to, "{'type':['number','null'],'minimum':0}");
        break;
    case MEMBER_STOPS:
        buffer_json(to, "{'oneOf':[{'type':'null'},");
        put_json(to, TEXT ",{'type':'array','maxItems':4,'items':" TEXT "}]}");
        break;
    case MEMBER_STREAM_OPTIONS:
        put_json(to, "{'type':['object','null'],'properties':{'include_usage':{'type':['boolean','null']}}}");
        break;
    case MEMBER_REFUSED:
        put_json(to, "{'enum':[false,null");
        for (int i = 0; member->words[i]; i++) { buffer_format(to, ",%s", member->words[i]); }
        put_json(to, "],'description':'not supported by this server'}");
        break;
    default:
        put_words(to, member, true);
    }
}

static void put_request(struct buffer *to, const struct dialect *dialect)
{
    put_json(to, "{'type':'object','required':[");
    for (size_t i = 0; i < dialect->member_count; i++) {
        if (dialect->members[i].required) { buffer_json(to, ",%s", dialect->members[i].name); }
    }
    put_json(to, "],'properties':{");
    for (size_t i = 0; i < dialect->member_count; i++) {
        buffer_json(to, ",%s:", dialect->members[i].name);
        put_type(to, &dialect->members[i]);
    }
    buffer_string(to, "}}");
}

/* --- Paths --- */

static void put_dialect(struct buffer *to, const struct dialect *dialect)
{
    buffer_json(to, ",%s:{'post':{'summary':%s,'requestBody':{'required':true,'content':{'application/json':{'schema':",
                dialect->path, dialect->summary);
    put_request(to, dialect);
    put_json(to, "}}},'responses':{'200':{'description':'The answer','content':{'application/json':{'schema':");
    put_json(to, dialect->schema);
    buffer_json(to, dialect->put_chunk ? "},'text/event-stream':{" : "");
    buffer_json(to,
                "}}},'default':{'description':'An error','content':{'application/json':{'schema':"
                "{'$ref':'#/components/schemas/%s_error'}}}}}}}",
                dialect->faults->name);
}

/* Appends an operation, with the last part of its path as a parameter if that is {name}. */
static void put_operation(struct buffer *to, const struct openapi_path *path)
{
    const char *name = strchr(path->path, '{');
    buffer_json(to, ",'%s':{'summary':%s,", path->method, path->summary);
    if (path->open) { put_json(to, "'security':[],"); }
    if (name) {
        buffer_json(to, "'parameters':[{'name':%.*s,'in':'path','required':true,'schema':{'type':'string'}}],",
                    (int)strcspn(name + 1, "}"), name + 1);
    }
    if (path->body) {
        buffer_json(to, "'requestBody':{'required':true,'content':{%s:{'schema':", path->body_type);
        put_json(to, path->body);
        buffer_string(to, "}}},");
    }
    buffer_json(to, "'responses':{'default':{'description':'The answer, or an error','content':{");
    if (path->type) { buffer_json(to, "%s:{},", path->type); }
    buffer_json(to, "'application/json':{}}}}}"); /* errors are JSON, too */
}

static void put_paths(struct buffer *to, struct openapi_paths paths)
{
    for (size_t i = 0; i < paths.count; i++) {
        bool same = i > 0 && strcmp(paths.rows[i].path, paths.rows[i - 1].path) == 0;
        if (!same) {
            buffer_string(to, i > 0 ? "}" : "");
            buffer_json(to, ",%s:{", paths.rows[i].path);
        }
        put_operation(to, &paths.rows[i]);
    }
    buffer_string(to, paths.count > 0 ? "}" : "");
}

void openapi_put(struct openapi_paths own, struct openapi_paths more, bool keys, struct buffer *to)
{
    const struct fault_style *const styles[] = {&openai_faults, &tei_faults, &cohere_faults};
    buffer_json(to, "{'openapi':'3.1.1','info':{'title':'Sluice','version':%s},'paths':{", sluice_version);
    for (size_t i = 0; i < dialect_count; i++) { put_dialect(to, dialects[i]); }
    put_paths(to, own);
    put_paths(to, more);
    put_json(to, "},'components':{'schemas':{'vector':{'type':'array','items':{'type':'number'}},"
                 "'labels':{'type':'array','items':{'type':'object','required':['label','score'],"
                 "'properties':{'label':{'type':'string'},'score':{'type':'number'}}}},"
                 "'ranks':{'type':'array','items':{'type':'object','required':['index','relevance_score'],"
                 "'properties':{'index':{'type':'integer'},'relevance_score':{'type':'number'},"
                 "'document':{'type':['object','string']}}}},"
                 "'usage':{'type':'object','required':['prompt_tokens','total_tokens'],'properties':{"
                 "'prompt_tokens':{'type':'integer'},'total_tokens':{'type':'integer'},"
                 "'completion_tokens':{'type':'integer'}}}");
    for (size_t i = 0; i < sizeof styles / sizeof styles[0]; i++) {
        buffer_json(to, ",'%s_error':", styles[i]->name);
        put_json(to, styles[i]->schema);
    }
    buffer_string(to, "}");
    if (keys) { put_json(to, ",'securitySchemes':{'key':{'type':'http','scheme':'bearer'}}"); }
    put_json(to, keys ? "},'security':[{'key':[]}]}" : "}}");
}
