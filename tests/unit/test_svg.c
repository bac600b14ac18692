/* Figures as SVG: what is drawn where, and that any text and any number give a well-formed file. */
#include "tests/unit/unit.h"

#include <math.h>

#include "common/base/file.h"
#include "common/report/coact_report.h"
#include "common/report/record_report.h"
#include "common/report/svg.h"
#include "common/route/coverage.h"
#include "common/route/tallied.h"

static int occurrences(const struct text *text, const char *what)
{
    int count = 0;
    for (const char *at = text->data; (at = strstr(at, what)); at += strlen(what))
        count++;
    return count;
}

static void test_figure(void **unused)
{
    (void)unused;
    struct text out = {0}, again = {0};
    struct err err = {0};
    const double x[] = { 0, 5, 10 }, line[] = { 0, 0.5, 1 }, odd[] = { 2, NAN, -1 },
                 single[] = { NAN, 0.5, NAN };
    const struct svg_curve curves[] = { { .label = "main <&\"> one", .stroke = SVG_BOLD, .y = line },
                                        { .label = NULL, .stroke = SVG_THIN + 3, .y = odd },
                                        { .label = NULL, .stroke = SVG_THIN + 4, .y = single } };
    const struct svg_panel panel = { .title = "P", .x_label = "x", .y_label = "y", .points = 3, .x = x, .x_max = 10,
                                     .y_max = 1, .percent = true, .curves = curves, .count = 3 };
    assert_int_equal(svg_figure(&out, "T & U", NULL, &panel, 1, &err), 0);
    assert_int_equal(svg_figure(&again, "T & U", NULL, &panel, 1, &err), 0);
    assert_string_equal(out.data, again.data);
    assert_int_equal(strncmp(out.data, "<svg ", 5), 0);
    assert_string_equal(out.data + out.length - 7, "</svg>\n");
    assert_non_null(strstr(out.data, ">T &amp; U<"));
    assert_non_null(strstr(out.data, ">main &lt;&amp;&quot;&gt; one<"));
    assert_null(strstr(out.data, "nan"));
    /* the frame is 360 wide from 64, 260 high from 84: a straight line from its lower left to its upper right corner */
    assert_non_null(strstr(out.data, "d=\"M64.0 344.0L244.0 214.0L424.0 84.0\""));
    /* points outside are drawn at the edge, NaN is skipped; a single point is a bar */
    assert_non_null(strstr(out.data, "d=\"M64.0 84.0L424.0 344.0\""));
    assert_non_null(strstr(out.data, "d=\"M244.0 214.0m-4 0h8\""));
    assert_non_null(strstr(out.data, ">100 %<"));
    assert_int_equal(occurrences(&out, "stroke-width=\"2.6\""), 2);      /* the curve and its legend */
    text_free(&out);
    text_free(&again);
}

/* An axis from 16 to 26 has 16 at its left and a tick every 2; without title the panel begins 52 higher. */
static void test_axis_and_no_title(void **unused)
{
    (void)unused;
    struct text out = {0}, bare = {0};
    struct err err = {0};
    const double x[] = {16, 21, 26}, line[] = {0, 0.5, 1};
    const struct svg_curve curve = {.label = "one", .stroke = SVG_BOLD, .y = line};
    const struct svg_panel panel = {.title = "P", .x_label = "x", .y_label = "y", .points = 3, .x = x, .x_min = 16,
                                    .x_max = 26, .y_max = 1, .curves = &curve, .count = 1};
    assert_int_equal(svg_figure(&out, "T", NULL, &panel, 1, &err), 0);
    assert_non_null(strstr(out.data, "d=\"M64.0 344.0L244.0 214.0L424.0 84.0\""));
    assert_non_null(strstr(out.data, "<text x=\"64.0\" y=\"364.0\" text-anchor=\"middle\" font-size=\"14\">16<"));
    assert_non_null(strstr(out.data, "<text x=\"136.0\" y=\"364.0\" text-anchor=\"middle\" font-size=\"14\">18<"));
    assert_non_null(strstr(out.data, "<text x=\"424.0\" y=\"364.0\" text-anchor=\"middle\" font-size=\"14\">26<"));
    assert_null(strstr(out.data, ">14<"));
    assert_null(strstr(out.data, "translate"));
    assert_int_equal(svg_figure(&bare, "", NULL, &panel, 1, &err), 0);
    assert_non_null(strstr(bare.data, "translate(0 -52)"));
    char height[32];
    snprintf(height, sizeof height, "height=\"%d\"", svg_height(&panel, 1));
    assert_non_null(strstr(bare.data, height));
    snprintf(height, sizeof height, "height=\"%d\"", svg_height(&panel, 1) + 52);
    assert_non_null(strstr(out.data, height));
    /* A curve from columns of rows, each x, y and a third number: the same, and no further than the right edge. */
    const double rows[] = {16, 0, 7, 21, 0.5, 7, 26, 1, 7, 27, 0, 7};
    const struct svg_curve columns = {.label = "one", .stroke = SVG_BOLD, .x = rows, .y = rows + 1, .points = 4, .stride = 3};
    struct svg_panel same = panel;
    same.curves = &columns;
    text_clear(&bare);
    assert_int_equal(svg_figure(&bare, "T", NULL, &same, 1, &err), 0);
    assert_string_equal(bare.data, out.data);
    text_free(&out);
    text_free(&bare);
}

/* Doublings are equally far apart: from 1 to 16, 360 wide from 64, each is 90; ticks are at powers of 2 only. */
static void test_log2_axis(void **unused)
{
    (void)unused;
    struct text out = {0};
    struct err err = {0};
    const double x[] = {1, 2, 3, 8, 16}, y[] = {0, 1, 0, 1, 0};
    const struct svg_curve curve = {.label = "one", .stroke = SVG_BOLD, .y = y};
    const struct svg_panel panel = {.title = "P", .x_label = "x", .y_label = "y", .points = 5, .x = x, .x_min = 1,
                                    .x_max = 16, .log2 = true, .y_max = 1, .curves = &curve, .count = 1};
    assert_int_equal(svg_figure(&out, "T", NULL, &panel, 1, &err), 0);
    assert_non_null(strstr(out.data, "d=\"M64.0 344.0L154.0 84.0L206.6 344.0L334.0 84.0L424.0 344.0\""));
    assert_non_null(strstr(out.data, "<text x=\"244.0\" y=\"364.0\" text-anchor=\"middle\" font-size=\"14\">4<"));
    assert_int_equal(occurrences(&out, "v5\" stroke"), 5);
    text_free(&out);
}

/* Named curves have a marker of their own at each point and in the legend; two equal curves are named together. */
static void test_marks_and_coinciding_curves(void **unused)
{
    (void)unused;
    struct text out = {0};
    struct err err = {0};
    const double x[] = {0, 1, 2}, first[] = {0, 1, 0.5}, again[] = {0, 1, 0.5}, other[] = {0, 1, NAN};
    struct svg_curve curves[] = {{.label = "K4", .stroke = SVG_BOLD, .y = first},
                                 {.label = "K6", .stroke = SVG_DASHED, .y = other},
                                 {.label = "K8", .stroke = SVG_DOTTED, .y = again}};
    const struct svg_panel panel = {.title = "P", .x_label = "x", .y_label = "y", .points = 3, .x = x, .x_max = 2, .y_max = 1,
                                    .curves = curves, .count = 3};
    assert_int_equal(svg_figure(&out, "T", NULL, &panel, 1, &err), 0);
    assert_non_null(strstr(out.data, ">K4 = K8<"));
    assert_int_equal(occurrences(&out, ">K6<"), 1);
    assert_null(strstr(out.data, ">K8<"));
    assert_int_equal(occurrences(&out, "a4 4 0 1 0"), 2 * 4);              /* a circle is two arcs */
    assert_int_equal(occurrences(&out, "h7.2v7.2"), 3);                    /* squares: two points and the legend */
    text_clear(&out);
    curves[1].label = NULL;                             /* not all have names: lines only */
    assert_int_equal(svg_figure(&out, "T", NULL, &panel, 1, &err), 0);
    assert_non_null(strstr(out.data, ">K8<"));
    assert_null(strstr(out.data, "a4 4 0 1 0"));
    text_free(&out);
}

/* Long names get smaller letters, and a legend of long names has fewer entries per line. */
static void test_long_names(void **unused)
{
    (void)unused;
    const double x[2] = { 1, 2 }, y[2] = { 0.5, 1 }, second[2] = { 0.2, 1 }, third[2] = { 0.2, 0.9 };
    struct svg_curve curves[3] = { { "none", SVG_BOLD, y }, { "MoE-Spec by path, budget 16", SVG_DASHED, second },
                                   { "K4", SVG_DOTTED, third } };
    const struct svg_panel panel = { .title = "How far the experts that an earlier token selected are selected again, by layer",
                                     .x_label = "x", .y_label = "y", .points = 2, .x = x, .x_max = 2, .y_max = 1,
                                     .curves = curves, .count = 3 };
    struct text out = {0};
    struct err err = {0};
    assert_int_equal(svg_figure(&out, "short", NULL, &panel, 1, &err), 0);
    assert_non_null(strstr(out.data, "font-size=\"8\" font-weight=\"bold\">How far"));
    assert_non_null(strstr(out.data, "font-size=\"16\" font-weight=\"bold\">short"));
    assert_int_equal(occurrences(&out, "<text x=\"98.0\" y="), 3);      /* one below the other */
    text_clear(&out);
    curves[1].label = "budget 16";
    assert_int_equal(svg_figure(&out, "short", NULL, &panel, 1, &err), 0);
    assert_int_equal(occurrences(&out, "<text x=\"98.0\" y="), 2);      /* two in a line */
    text_free(&out);
}

enum { COVER_LAYERS = 20, COVER_EXPERTS = 12, COVER_TOKENS = 9 };

/* Coverage of random routes: no two layers are equal, or they would be named together. */
static struct analysis *cover(int layers, char *folder, struct header *header)
{
    static int16_t experts[COVER_TOKENS * COVER_LAYERS * 2];
    static float probs[COVER_TOKENS * COVER_LAYERS * COVER_EXPERTS];
    const struct analysis_setup setup = { .layer = -1, .method = RANKING_MASS, .folder = folder };
    const struct route_tokens record = { .n = COVER_TOKENS, .experts = experts, .probs = probs };
    struct analysis *analysis = NULL;
    struct text note = {0};
    struct err err = {0};
    unsigned state = 5;
    *header = (struct header){ .model = { .layers = layers, .moe_layers = layers, .experts = COVER_EXPERTS, .top_k = 2,
                                          .vocab = 9, .name = "m" } };
    for (int i = 0; i < COVER_TOKENS * layers * 2; i++) {
        state = state * 1664525u + 1013904223u;
        experts[i] = (int16_t)(i % 2 * (COVER_EXPERTS / 2) + (int)(state >> 16) % (COVER_EXPERTS / 2));
    }
    for (int i = 0; i < COVER_TOKENS * layers * COVER_EXPERTS; i++) {
        state = state * 1664525u + 1013904223u;
        probs[i] = (float)(state >> 16) / (65536.0f * COVER_EXPERTS);
    }
    assert_int_equal(analysis_open(&analysis, &coverage_analysis, &setup, &header->model, &err), 0);
    assert_int_equal(analysis->class->tokens(analysis, &record, &err), 0);
    assert_int_equal(analysis_finish(analysis, header, NULL, &note, &err), 0);
    return analysis;
}

static void test_coverage_reports(void **unused)
{
    (void)unused;
    char *folder = unit_folder();
    struct header header;
    struct analysis *coverage = cover(3, folder, &header);
    struct text out = {0};
    struct err err = {0};
    assert_int_equal(coact_svg(&out, coverage, &header, -1, &err), 0);
    assert_int_equal(occurrences(&out, ">layer 2<"), 2);
    assert_int_equal(occurrences(&out, ">mean<"), 2);
    text_clear(&out);
    assert_int_equal(coact_svg(&out, coverage, &header, 1, &err), 0);
    assert_int_equal(occurrences(&out, ">layer 1<"), 2);
    assert_int_equal(occurrences(&out, ">layer 2<") + occurrences(&out, ">mean<"), 0);
    text_clear(&out);
    analysis_free(&coverage);

    coverage = cover(COVER_LAYERS, folder, &header);
    assert_int_equal(coact_svg(&out, coverage, &header, -1, &err), 0);
    assert_int_equal(occurrences(&out, ">one layer<"), 2);               /* too many to distinguish */
    text_clear(&out);
    assert_int_equal(coact_text(&out, coverage, &header, -1, &err), 0);
    assert_int_equal(occurrences(&out, "mean"), 2);
    assert_non_null(strstr(out.data, "      12\n"));                     /* the largest budget, all experts */
    text_free(&out);
    analysis_free(&coverage);
    unit_remove(folder);
}

static int read_back(struct text *out, const char *path)
{
    text_clear(out);
    return file_read(out, path, 1 << 20, NULL);
}

/* Records shown directly look like those that moe-view shows of the stream made from them. */
static void test_record_report(void **unused)
{
    (void)unused;
    enum { LAYERS = 3, EXPERTS = 4 };
    char *folder = unit_folder();
    double share[LAYERS * EXPERTS];
    struct coverage coverage = { .moe_layers = LAYERS, .experts = EXPERTS, .top_k = 2, .tokens = 9, .method = "mass",
                                 .mass = share, .served = share };
    struct header header = { .kind = STREAM_COACT, .has_model = true,
                             .model = { .layers = LAYERS, .moe_layers = LAYERS, .experts = EXPERTS, .top_k = 2 } };
    struct text out = {0};
    struct err err = {0};
    const char *path = unit_path(folder, "out");
    for (int i = 0; i < LAYERS * EXPERTS; i++)
        share[i] = (i % EXPERTS + 1.0) / EXPERTS;
    for (int form = SHOW_JSON; form <= SHOW_CSV; form++) {
        struct record_report report = { .header = &header, .layer = form == SHOW_JSON ? -1 : 2 };
        assert_int_equal(show_open(&report.show, path, (enum show_form)form, &err), 0);
        assert_int_equal(coverage_put(&coverage, record_report_put, &report, &err), 0);
        assert_int_equal(show_close(&report.show, &err), 0);
        assert_int_equal(read_back(&out, path), 0);
        if (form == SHOW_JSON) {
            assert_int_equal(occurrences(&out, "\n"), LAYERS);
            assert_non_null(strstr(out.data, "{\"type\": \"coverage\", \"layer\": 1, \"method\": \"mass\", \"tokens\": 9, "
                                             "\"points\": 4, \"budget\": [1, 2, 3, 4], \"mass\": [0.25, 0.5, 0.75, 1.0], "));
        } else {
            assert_string_equal(out.data, "layer,method,tokens,points,budget,mass,served\n2,mass,9,4,1,0.25,0.25\n"
                                          "2,mass,9,4,2,0.5,0.5\n2,mass,9,4,3,0.75,0.75\n2,mass,9,4,4,1.0,1.0\n");
        }
    }
    text_free(&out);
    unit_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_figure), cmocka_unit_test(test_axis_and_no_title),
        cmocka_unit_test(test_log2_axis),
        cmocka_unit_test(test_marks_and_coinciding_curves),
        cmocka_unit_test(test_long_names), cmocka_unit_test(test_coverage_reports),
        cmocka_unit_test(test_record_report),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
