/* The forms of a comparison for others: pull requests, spreadsheets, CI servers, browsers. Each shows the same report;
 * names from files are text in all of them, whatever they hold. */
#ifndef CKPT_VIZ_COMPARE_COMPARE_WRITE_H
#define CKPT_VIZ_COMPARE_COMPARE_WRITE_H

#include "viz/compare/compare.h"

/* GitHub's Markdown. Tables lose their last rows where the text would pass `room` bytes (0: any length): it says how
 * many. */
void ckpt_compare_markdown(const ckpt_compare_report *report, size_t room, ckpt_text *text);

/* One line per number (RFC 4180): metrics, rows, decisions, contributors, limits. */
void ckpt_compare_csv(const ckpt_compare_report *report, ckpt_text *text);

/* JUnit's XML as Jenkins and GitLab read it: a suite per NEW; a test case per metric, and one for whether a plan still
 * fits. Failed is what the exit code fails for, skipped what the files or samples do not tell (with warn_only: what
 * would have failed). What cannot be compared is an error. */
void ckpt_compare_junit(const ckpt_compare_report *report, ckpt_text *text);

/* A page that needs nothing else and runs nothing. */
void ckpt_compare_html(const ckpt_compare_report *report, ckpt_text *text);

/* Workflow commands for GitHub Actions, one a line: an error per exceeded limit (a warning with warn_only), a notice
 * with the verdict. */
void ckpt_compare_annotations(const ckpt_compare_report *report, ckpt_text *text);

#endif
