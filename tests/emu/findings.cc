/* Findings: collected as text, or printed before the program aborts. */
#include <stdarg.h>

#include <string>

#include "tests/emu/inside.h"

struct emu_options emu_options = {EMU_FORWARD, 1, 90, false};

static std::string text;

const char *emu_findings(void) { return text.c_str(); }
void emu_clear(void) { text.clear(); }

namespace emu {

static void add(const std::string &line)
{
    if (!emu_options.collect) {
        fprintf(stderr, "emulator: %s\n", line.c_str());
        abort();
    }
    if (text.size() < 100000)
        text += line + "\n";
}

void finding_add(const char *format, ...)
{
    char what[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    add(std::string(now.kernel ? now.kernel : "host") + ": " + what);
}

/* Objects with a destructor are not allowed here: give_up() does not return. */
void found(int line, const char *format, ...)
{
    char what[1024], where[1400];
    va_list list;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    if (now.kernel && now.self != HOST) {
        const location &p = self()->where;
        snprintf(where, sizeof where, "block (%u, %u, %u), thread (%u, %u, %u), line %d: %s", p.block.x, p.block.y, p.block.z,
                 p.thread.x, p.thread.y, p.thread.z, line, what);
        finding_add("%s", where);
    } else {
        finding_add("%s", what);
    }
    give_up();
}

}
