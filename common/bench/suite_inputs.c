/* Lists the files that a suite names: its own, and those in options of its settings, also through attached drafters. */
#include "common/bench/suite.h"
#include "common/session/drafts.h"

static int visit_setting(const struct suite *suite, const struct suite_setting *setting, opt_visitor *visit,
                         const void *context, struct err *err)
{
    struct decode_settings settings = setting->settings;
    struct auto_drafts drafts = {.found = false};
    int rc = decode_settings_inputs(setting->store, visit, context, err) ||
             auto_drafts_attach(&settings, &drafts, suite->models[setting->model].path, err) ||
             auto_drafts_inputs(&drafts, visit, context, err) ? -1 : 0;
    auto_drafts_free(&drafts);
    return rc;
}

int suite_inputs(const struct suite *suite, opt_visitor *visit, const void *context, struct err *err)
{
    for (int i = 0; i < suite->model_count; i++)
        if (visit(context, "model", suite->models[i].path, err))
            return -1;
    for (int i = 0; i < suite->prompt_count; i++)
        if (visit(context, "prompts", suite->prompts[i], err))
            return -1;
    if (suite->chat_template && visit(context, "chat-template", suite->chat_template, err))
        return -1;
    for (int i = 0; i < suite->setting_count; i++)
        if (visit_setting(suite, &suite->settings[i], visit, context, err))
            return err_at(err, "setting '%s'", suite->settings[i].name);
    return 0;
}
