/* Which processors threads run on. OpenMP binds its threads to places where OMP_PROC_BIND says so; the programs set it
 * where threads fill the machine (programs/cli/settle.h). It then also binds the thread that starts the program to the
 * first place, and whatever threads that thread starts would sit there beside it.
 *
 * So the programs begin by ckpt_place_leave, an open CPU device takes the first place for the thread that opened it, and
 * a thread that is started while one is open begins by ckpt_place_leave too. Without places neither does anything. */
#ifndef CKPT_KERNELS_PLACE_H
#define CKPT_KERNELS_PLACE_H

/* From now on the calling thread runs in the first place, as OpenMP assumes of the thread that starts its teams. */
void ckpt_place_take(void);
/* From now on it runs in any place: on every processor that the process was given. */
void ckpt_place_leave(void);

#endif
