/* What libcupti does with NVTX: takes the places of its functions in the table of an instance, so that ranges and marks
 * become items of the script, and records. */
#include <stdio.h>

#include "tests/cupti_double/cupti_double_impl.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

enum { LONGEST = 200 };

static void NVTX_API nvtx_mark(const char *message)
{
    char item[LONGEST];
    snprintf(item, sizeof item, "mark %s", message);
    ckpt_cupti_double_run(item);
}

static int NVTX_API nvtx_push(const char *message)
{
    char item[LONGEST];
    snprintf(item, sizeof item, "range %s", message);
    ckpt_cupti_double_run(item);
    return 0;
}

static int NVTX_API nvtx_pop(void)
{
    ckpt_cupti_double_run("end");
    return 0;
}

EXPORT int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table);

EXPORT int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table)
{
    const NvtxExportTableCallbacks *const callbacks = get_export_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned size = 0;
    if (callbacks == NULL || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) != 1) {
        return 0;
    }
    *table[NVTX_CBID_CORE_MarkA] = (NvtxFunctionPointer)nvtx_mark;
    *table[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)nvtx_push;
    *table[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)nvtx_pop;
    return 1;
}
#endif
