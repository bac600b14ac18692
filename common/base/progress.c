#include "common/base/progress.h"

#include <inttypes.h>
#include <unistd.h>

#include "common/base/clock.h"

#define WAIT_SECONDS 1.0        /* shorter work needs no bar */
#define DRAW_SECONDS 0.1

void progress_start(struct progress *bar, enum progress_mode mode, FILE *to, const char *unit, uint64_t total)
{
    bool shown = to && (mode == PROGRESS_ALWAYS || (mode == PROGRESS_AUTO && isatty(fileno(to))));
    *bar = (struct progress){.to = shown ? to : NULL, .unit = unit, .total = total, .started = clock_seconds()};
}

/* Formats 1234567 as 1.23M: three significant digits, in powers of 1000. */
static void short_number(double value, char *text, size_t room)
{
    static const char suffixes[] = " kMGTPE";
    int power = 0;
    while (value >= 999.5 && power < 6) {
        value /= 1000;
        power++;
    }
    int decimals = power == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    snprintf(text, room, "%.*f%.*s", decimals, value, power ? 1 : 0, suffixes + power);
}

static void short_time(double seconds, char *text, size_t room)
{
    uint64_t whole = seconds > 359999 ? 359999 : (uint64_t)(seconds + 0.5);
    if (whole >= 3600)
        snprintf(text, room, "%" PRIu64 ":%02" PRIu64 ":%02" PRIu64, whole / 3600, whole / 60 % 60, whole % 60);
    else
        snprintf(text, room, "%" PRIu64 ":%02" PRIu64, whole / 60, whole % 60);
}

void progress_line(const struct progress *bar, double seconds, char *line, size_t room)
{
    char done[16], total[16], rate[16], left[16], gauge[21];
    double speed = seconds > 0 ? (double)bar->done / seconds : 0;
    short_number((double)bar->done, done, sizeof done);
    short_number(speed, rate, sizeof rate);
    if (!bar->total) {
        short_time(seconds, left, sizeof left);
        snprintf(line, room, "%s %s, %s/s, %s so far", done, bar->unit, rate, left);
        return;
    }
    double part = (double)bar->done / (double)bar->total;
    part = part > 1 ? 1 : part;
    for (int i = 0; i < 20; i++)
        gauge[i] = i < (int)(part * 20) ? '#' : '.';
    gauge[20] = '\0';
    short_number((double)bar->total, total, sizeof total);
    double rest = bar->done < bar->total ? (double)(bar->total - bar->done) : 0;
    short_time(speed > 0 ? rest / speed : 0, left, sizeof left);
    snprintf(line, room, "[%s] %3.0f%% %s of %s %s, %s/s, %s left", gauge, part * 100, done, total, bar->unit, rate,
             speed > 0 ? left : "?");
}

void progress_step(struct progress *bar, uint64_t amount)
{
    bar->done += amount;
    if (!bar->to)
        return;
    double now = clock_seconds();
    if (now - bar->started < WAIT_SECONDS || now - bar->drawn < DRAW_SECONDS)
        return;
    char line[160];
    progress_line(bar, now - bar->started, line, sizeof line);
    fprintf(bar->to, "\r%s\033[K", line);
    fflush(bar->to);
    bar->drawn = now;
}

void progress_end(struct progress *bar)
{
    if (bar->to && bar->drawn > 0) {
        fputs("\r\033[K", bar->to);
        fflush(bar->to);
    }
    bar->to = NULL;
}
