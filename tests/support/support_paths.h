/* Where a test finds its files, looked up when it runs, so that a test program can be carried to another machine. */
#ifndef CKPT_TESTS_SUPPORT_PATHS_H
#define CKPT_TESTS_SUPPORT_PATHS_H

/* Three folders, without a slash at the end: the sources, the programs, and one for the files a test writes. Each is
 * what the variable of the same name says, an absolute path (CTest sets all three). Without it, the programs' folder is
 * that of the running program, the sources' the nearest above it that holds models/byte-gpt.json, and the third is
 * `scratch` beside the programs' folder. */
const char *ckpt_source_dir(void); /* CKPT_SOURCE_DIR */
const char *ckpt_bin_dir(void);    /* CKPT_BIN_DIR */
const char *ckpt_work_dir(void);   /* CKPT_WORK_DIR; is created */

/* A file in one of them. The text stays, and is the same one for the same name: for names that are written out in a
 * test, not for names that are made in a loop. */
const char *ckpt_source_file(const char *name);
const char *ckpt_bin_file(const char *name);
const char *ckpt_work_file(const char *name);

#endif
