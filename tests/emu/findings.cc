/* Findings: collected as text, or printed and the end of the program. */
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

static std::string printed(const char *format, va_list list)
{
    char buffer[1024];
    vsnprintf(buffer, sizeof buffer, format, list);
    return buffer;
}

void finding_add(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    std::string what = printed(format, list);
    va_end(list);
    add(std::string(now.kernel ? now.kernel : "host") + ": " + what);
}

void found(int line, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    std::string what = printed(format, list);
    va_end(list);
    std::string head;
    if (now.kernel && now.self != HOST) {
        const place &p = self()->where;
        char buffer[160];
        snprintf(buffer, sizeof buffer, ", block (%u, %u, %u), thread (%u, %u, %u), line %d", p.block.x, p.block.y, p.block.z,
                 p.thread.x, p.thread.y, p.thread.z, line);
        head = now.kernel + std::string(buffer);
    } else {
        head = now.kernel ? now.kernel : "host";
    }
    add(head + ": " + what);
    give_up();
}

}
