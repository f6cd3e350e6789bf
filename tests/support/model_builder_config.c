/* config.json and the files of sentence-transformers, as 2.x with transformers 4 wrote them, and as 6.x with 5 does. */
#include <errno.h>
#include <sys/stat.h>

#include "model_builder_parts.h"

/* As transformers writes it for distilbert-base-uncased. */
static void write_distilbert_config(const struct model_spec *spec, const char *directory)
{
    FILE *file = builder_create(directory, "config.json");
    fprintf(file,
            "{\n  \"activation\": \"%s\",\n  \"architectures\": [\"DistilBertForMaskedLM\"],\n"
            "  \"attention_dropout\": 0.1,\n  \"dim\": %u,\n  \"dropout\": 0.1,\n  \"hidden_dim\": %u,\n"
            "  \"initializer_range\": 0.02,\n  \"max_position_embeddings\": %u,\n  \"model_type\": \"distilbert\",\n"
            "  \"n_heads\": %u,\n  \"n_layers\": %u,\n  \"pad_token_id\": 0,\n  \"qa_dropout\": 0.1,\n"
            "  \"seq_classif_dropout\": 0.2,\n  \"sinusoidal_pos_embds\": false,\n  \"tie_weights_\": true,\n"
            "  \"transformers_version\": \"4.10.0.dev0\",\n  \"vocab_size\": %u\n}\n",
            spec->hidden_act, spec->hidden, spec->intermediate, spec->positions, spec->heads, spec->layers,
            spec->vocabulary);
    builder_finish(file, "config.json");
}

void builder_write_config(const struct model_spec *spec, const char *directory)
{
    if (spec->distilbert) {
        write_distilbert_config(spec, directory);
        return;
    }
    bool current = spec->generation == GENERATION_CURRENT;
    FILE *file = builder_create(directory, "config.json");
    fprintf(file,
            "{\n  \"architectures\": [\"BertModel\"],\n  \"attention_probs_dropout_prob\": 0.1,\n"
            "  \"classifier_dropout\": null,\n  \"hidden_act\": \"%s\",\n  \"hidden_dropout_prob\": 0.1,\n"
            "  \"hidden_size\": %u,\n  \"initializer_range\": 0.02,\n  \"intermediate_size\": %u,\n"
            "  \"layer_norm_eps\": 1e-12,\n  \"max_position_embeddings\": %u,\n  \"model_type\": \"bert\",\n"
            "  \"num_attention_heads\": %u,\n  \"num_hidden_layers\": %u,\n  \"pad_token_id\": 0,\n"
            "  \"type_vocab_size\": %u,\n  \"use_cache\": true,\n  \"vocab_size\": %u,\n",
            spec->hidden_act, spec->hidden, spec->intermediate, spec->positions, spec->heads, spec->layers,
            spec->token_types, spec->vocabulary);
    fputs(current ? "  \"add_cross_attention\": false,\n  \"bos_token_id\": null,\n  \"dtype\": \"float32\",\n"
                    "  \"eos_token_id\": null,\n  \"is_decoder\": false,\n  \"tie_word_embeddings\": true,\n"
                    "  \"transformers_version\": \"5.23.0\"\n}\n"
                  : "  \"_name_or_path\": \"nreimers/MiniLM-L6-H384-uncased\",\n  \"gradient_checkpointing\": false,\n"
                    "  \"position_embedding_type\": \"absolute\",\n  \"torch_dtype\": \"float32\",\n"
                    "  \"transformers_version\": \"4.8.2\"\n}\n",
          file);
    builder_finish(file, "config.json");
}

static void make_folder(const char *directory, const char *name)
{
    char path[BUILDER_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        builder_die("cannot make", path);
}

static void write_modules(const struct model_spec *spec, const char *directory)
{
    bool current = spec->generation == GENERATION_CURRENT;
    const char *transformer = current ? "base.modules.transformer." : "models.";
    const char *pooling = current ? "sentence_transformer.modules.pooling." : "models.";
    const char *normalize = current ? "base.modules.normalize." : "models.";
    FILE *file = builder_create(directory, "modules.json");
    fprintf(file,
            "[\n  {\"idx\": 0, \"name\": \"0\", \"path\": \"\", \"type\": \"sentence_transformers.%sTransformer\"},\n"
            "  {\"idx\": 1, \"name\": \"1\", \"path\": \"1_Pooling\", \"type\": \"sentence_transformers.%sPooling\"}",
            transformer, pooling);
    if (spec->normalize)
        fprintf(file,
                ",\n  {\"idx\": 2, \"name\": \"2\", \"path\": \"2_Normalize\", \"type\": "
                "\"sentence_transformers.%sNormalize\"}",
                normalize);
    fputs("\n]\n", file);
    builder_finish(file, "modules.json");
}

static void write_pooling(const struct model_spec *spec, const char *directory)
{
    const char *mean = spec->pooling == POOLING_CLS ? "false" : "true";
    const char *cls = spec->pooling == POOLING_CLS ? "true" : "false";
    make_folder(directory, "1_Pooling");
    FILE *file = builder_create(directory, "1_Pooling/config.json");
    if (spec->generation == GENERATION_CURRENT)
        fprintf(file, "{\"embedding_dimension\": %u, \"pooling_mode\": \"%s\", \"include_prompt\": true}\n",
                spec->hidden, spec->pooling == POOLING_CLS ? "cls" : "mean");
    else
        fprintf(file,
                "{\"word_embedding_dimension\": %u, \"pooling_mode_cls_token\": %s, \"pooling_mode_mean_tokens\": %s, "
                "\"pooling_mode_max_tokens\": false, \"pooling_mode_mean_sqrt_len_tokens\": false}\n",
                spec->hidden, cls, mean);
    builder_finish(file, "1_Pooling/config.json");
}

void builder_write_sentence_files(const struct model_spec *spec, const char *directory)
{
    bool current = spec->generation == GENERATION_CURRENT;
    write_modules(spec, directory);
    write_pooling(spec, directory);
    FILE *file = builder_create(directory, "sentence_bert_config.json");
    if (current)
        fputs(
            "{\"transformer_task\": \"feature-extraction\", \"modality_config\": {\"text\": {\"method\": \"forward\", "
            "\"method_output_name\": \"last_hidden_state\"}}, \"module_output_name\": \"token_embeddings\"}\n",
            file);
    else if (spec->max_tokens != 0)
        fprintf(file, "{\"max_seq_length\": %u, \"do_lower_case\": false}\n", spec->max_tokens);
    else
        fputs("{\"max_seq_length\": null, \"do_lower_case\": false}\n", file);
    builder_finish(file, "sentence_bert_config.json");
    if (current && spec->normalize) {
        make_folder(directory, "2_Normalize");
        model_file_write(directory, "2_Normalize/config.json",
                         "{\"module_input_name\": \"sentence_embedding\", "
                         "\"module_output_name\": \"sentence_embedding\"}\n");
    }
    model_file_write(directory, "config_sentence_transformers.json",
                     current ? "{\"__version__\": {\"sentence_transformers\": \"6.2.0\", \"transformers\": \"5.23.0\", "
                               "\"pytorch\": \"2.9.1\"}, \"default_prompt_name\": null, \"model_type\": "
                               "\"SentenceTransformer\", \"prompts\": {\"query\": \"\", \"document\": \"\"}, "
                               "\"similarity_fn_name\": \"cosine\"}\n"
                             : "{\"__version__\": {\"sentence_transformers\": \"2.0.0\", \"transformers\": \"4.6.1\", "
                               "\"pytorch\": \"1.8.1\"}}\n");
}
