/* A plugin of QEMU that counts the instructions of a program, and writes the number to stderr at its end.
 *
 *   cc -shared -fPIC -o count.so count.c && qemu-aarch64 -plugin ./count.so PROGRAM
 *
 * The declarations are those of qemu-plugin.h, which Debian does not package. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id, void (*call)(plugin_id id, struct qemu_plugin_tb *block));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *block, void (*call)(unsigned vcpu, void *data), int flags, void *data);
void qemu_plugin_register_atexit_cb(plugin_id id, void (*call)(plugin_id id, void *data), void *data);

EXPORT int qemu_plugin_version = 1;

static uint64_t instructions;

static void run(unsigned vcpu, void *data)
{
    (void)vcpu;
    __atomic_fetch_add(&instructions, (uintptr_t)data, __ATOMIC_RELAXED);
}

static void translated(plugin_id id, struct qemu_plugin_tb *block)
{
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_cb(block, run, 0, (void *)(uintptr_t)qemu_plugin_tb_n_insns(block));
}

static void at_exit(plugin_id id, void *data)
{
    (void)id;
    (void)data;
    fprintf(stderr, "%" PRIu64 "\n", instructions);
}

EXPORT int qemu_plugin_install(plugin_id id, const void *info, int count, char **arguments)
{
    (void)info;
    (void)count;
    (void)arguments;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, at_exit, NULL);
    return 0;
}
