/* Switching between the threads of a threadgroup: a stack and the registers that a call must keep. */
#ifndef DS_TESTS_METAL_SIM_FIBER_H
#define DS_TESTS_METAL_SIM_FIBER_H

#include <stdint.h>

/* Saves where it stands in *from and continues at `to`, which an earlier call saved or fiber_new made. */
extern "C" void sim_fiber_switch(void **from, void *to);
/* A context that calls entry(), which never returns, on the stack that ends at `top` (16-byte aligned). */
static inline void *fiber_new(char *top, void (*entry)());

#if defined(__x86_64__)

asm(".text\n"
    ".globl sim_fiber_switch\n"
    ".type sim_fiber_switch, @function\n"
    "sim_fiber_switch:\n"
    "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
    "    mov %rsp, (%rdi)\n"
    "    mov %rsi, %rsp\n"
    "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n"
    "    ret\n"
    ".size sim_fiber_switch, . - sim_fiber_switch\n");

static inline void *fiber_new(char *top, void (*entry)())
{
    void **sp = reinterpret_cast<void **>(top);
    *--sp = nullptr;                                     /* entry begins as after a call: sp + 8 is a multiple of 16 */
    *--sp = reinterpret_cast<void *>(entry);
    for (int i = 0; i < 6; i++) *--sp = nullptr;
    return sp;
}

#elif defined(__aarch64__)

asm(".text\n"
    ".globl sim_fiber_switch\n"
    ".type sim_fiber_switch, %function\n"
    "sim_fiber_switch:\n"
    "    sub sp, sp, #160\n"
    "    stp x19, x20, [sp]\n    stp x21, x22, [sp, #16]\n    stp x23, x24, [sp, #32]\n    stp x25, x26, [sp, #48]\n"
    "    stp x27, x28, [sp, #64]\n    stp x29, x30, [sp, #80]\n"
    "    stp d8, d9, [sp, #96]\n    stp d10, d11, [sp, #112]\n    stp d12, d13, [sp, #128]\n    stp d14, d15, [sp, #144]\n"
    "    mov x9, sp\n    str x9, [x0]\n    mov sp, x1\n"
    "    ldp x19, x20, [sp]\n    ldp x21, x22, [sp, #16]\n    ldp x23, x24, [sp, #32]\n    ldp x25, x26, [sp, #48]\n"
    "    ldp x27, x28, [sp, #64]\n    ldp x29, x30, [sp, #80]\n"
    "    ldp d8, d9, [sp, #96]\n    ldp d10, d11, [sp, #112]\n    ldp d12, d13, [sp, #128]\n    ldp d14, d15, [sp, #144]\n"
    "    add sp, sp, #160\n    ret\n"
    ".size sim_fiber_switch, . - sim_fiber_switch\n");

static inline void *fiber_new(char *top, void (*entry)())
{
    uint64_t *sp = reinterpret_cast<uint64_t *>(top) - 20;
    for (int i = 0; i < 20; i++) sp[i] = 0;
    sp[11] = reinterpret_cast<uint64_t>(entry);          /* x30, where ret goes */
    return sp;
}

#else
#error "the software device knows how to switch stacks on x86-64 and arm64"
#endif

#endif
