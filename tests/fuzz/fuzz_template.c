/* Any bytes as a chat template, rendered with a few messages. */
#include "common/template/template.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char json[] = "{\"messages\":[{\"role\":\"user\",\"content\":\" a\\u00e9 b\\n\"},{\"role\":\"assistant\","
                               "\"content\":null,\"tool_calls\":"
                               "[{\"name\":\"f\",\"arguments\":{\"x\":[1,2.5,true]}}]}],\"n\":3}";
    struct template *t = NULL;
    struct template_output out = {0};
    json_t *values = json_loads(json, 0, NULL);
    if (values && !template_new(&t, (const char *)data, bytes, NULL))
        template_render(t, values, NULL, &out, NULL);
    template_output_free(&out);
    template_free(&t);
    json_decref(values);
    return 0;
}
