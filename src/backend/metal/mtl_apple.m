/* mtl.h over Apple's Metal. Forwards and nothing else: what can be wrong is in portable files, which tests execute.
 *
 * Selectors are those of macOS 14; what came later is asked for first. No automatic reference counting: what is kept is
 * retained here and released in the matching free. Every function has a pool of its own, for callers without one. */
#include "backend/metal/mtl.h"
#include "backend/metal/sources.h"

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_LIBRARIES = 32 };

struct ds_mtl {
    id<MTLDevice> device;
    id<MTLCommandQueue> queue;
    id<MTLLibrary> library[MAX_LIBRARIES];
    int n_libraries;
};
struct ds_mtl_buf { id<MTLBuffer> b; };
struct ds_mtl_fn { id<MTLComputePipelineState> p; };
struct ds_mtl_cmd { id<MTLCommandBuffer> b; id<MTLComputeCommandEncoder> enc; };

static const char *text_of(NSError *err) { return err ? [[err localizedDescription] UTF8String] : "no reason was given"; }

/* --- device --- */

/* Language and maths are named, because the defaults follow the SDK that the program was linked with. */
static MTLCompileOptions *compile_options(void)
{
    MTLCompileOptions *o = [[[MTLCompileOptions alloc] init] autorelease];
    o.languageVersion = MTLLanguageVersion3_1;
    if (@available(macOS 15.0, *)) {
        o.mathMode = MTLMathModeSafe;
        o.mathFloatingPointFunctions = MTLMathFloatingPointFunctionsPrecise;
    } else {
        o.fastMathEnabled = NO;
    }
    return o;
}

static bool compile(struct ds_mtl *d, struct ds_err *e)
{
    for (const struct ds_metal_source *s = ds_metal_sources; s->name; s++) {
        NSError *err = nil;
        NSString *text = [NSString stringWithUTF8String:s->text];
        id<MTLLibrary> lib = d->n_libraries < MAX_LIBRARIES ? [d->device newLibraryWithSource:text options:compile_options() error:&err] : nil;
        if (!lib) {
            ds_fail(e, DS_EUNSUP, "the shader %s does not compile here: %s", s->name, text_of(err));
            return false;
        }
        d->library[d->n_libraries++] = lib;
    }
    return true;
}

/* Nil over SSH or in a virtual machine: then the list of all devices is asked. */
static id<MTLDevice> find_device(void)
{
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    if (device) return device;
    NSArray<id<MTLDevice>> *all = [MTLCopyAllDevices() autorelease];
    return [all count] ? [[all objectAtIndex:0] retain] : nil;
}

struct ds_mtl *ds_mtl_open(struct ds_err *e)
{
    @autoreleasepool {
        struct ds_mtl *d = calloc(1, sizeof *d);
        if (!d) {
            ds_fail(e, DS_ENOMEM, "the system refused memory for the Metal device");
            return NULL;
        }
        if (!(d->device = find_device())) ds_fail(e, DS_EUNSUP, "no Metal device: this system names none");
        else if (!(d->queue = [d->device newCommandQueue])) ds_fail(e, DS_EUNSUP, "Metal refused a command queue");
        else if (compile(d, e)) return d;
        ds_mtl_close(d);
        return NULL;
    }
}

void ds_mtl_close(struct ds_mtl *d)
{
    if (!d) return;
    @autoreleasepool {
        for (int i = 0; i < d->n_libraries; i++) [d->library[i] release];
        [d->queue release];
        [d->device release];
        free(d);
    }
}

static int family_of(id<MTLDevice> device)
{
    static const MTLGPUFamily families[] = { MTLGPUFamilyApple9, MTLGPUFamilyApple8, MTLGPUFamilyApple7 };
    for (int i = 0; i < 3; i++)
        if ([device supportsFamily:families[i]]) return 9 - i;
    return 0;
}

void ds_mtl_facts(struct ds_mtl *d, struct ds_mtl_facts *f)
{
    @autoreleasepool {
        NSProcessInfo *info = [NSProcessInfo processInfo];
        *f = (struct ds_mtl_facts){
            .family = family_of(d->device),
            .page = (size_t)getpagesize(),
            .max_buffer = [d->device maxBufferLength],
            .working_set = [d->device recommendedMaxWorkingSetSize],
            .max_threads = (int)[d->device maxThreadsPerThreadgroup].width,
            .thermal = (int)[info thermalState],
            .low_power = [info isLowPowerModeEnabled],
        };
        snprintf(f->name, sizeof f->name, "%s", [[d->device name] UTF8String]);
    }
}

/* --- buffers --- */

static struct ds_mtl_buf *hold(id<MTLBuffer> b)
{
    struct ds_mtl_buf *h = b ? malloc(sizeof *h) : NULL;
    if (h) h->b = b;
    else [b release];
    return h;
}

struct ds_mtl_buf *ds_mtl_buf_new(struct ds_mtl *d, size_t bytes)
{
    @autoreleasepool {
        return hold([d->device newBufferWithLength:bytes options:MTLResourceStorageModeShared]);
    }
}

struct ds_mtl_buf *ds_mtl_buf_wrap(struct ds_mtl *d, const void *base, size_t bytes)
{
    @autoreleasepool {
        return hold([d->device newBufferWithBytesNoCopy:(void *)(uintptr_t)base
                                                 length:bytes
                                                options:MTLResourceStorageModeShared
                                            deallocator:nil]);
    }
}

void ds_mtl_buf_free(struct ds_mtl_buf *b)
{
    if (!b) return;
    @autoreleasepool {
        [b->b release];
        free(b);
    }
}

void *ds_mtl_buf_ptr(struct ds_mtl_buf *b) { return [b->b contents]; }

/* --- pipelines --- */

static id<MTLFunction> find_function(struct ds_mtl *d, const char *name, const int32_t *consts, int n, NSError **err)
{
    MTLFunctionConstantValues *values = [[[MTLFunctionConstantValues alloc] init] autorelease];
    NSString *wanted = [NSString stringWithUTF8String:name];
    for (int i = 0; i < n; i++) [values setConstantValue:&consts[i] type:MTLDataTypeInt atIndex:(NSUInteger)i];
    for (int i = 0; i < d->n_libraries; i++) {
        if (![[d->library[i] functionNames] containsObject:wanted]) continue;
        return n ? [d->library[i] newFunctionWithName:wanted constantValues:values error:err] : [d->library[i] newFunctionWithName:wanted];
    }
    return nil;
}

struct ds_mtl_fn *ds_mtl_fn_new(struct ds_mtl *d, const char *name, const int32_t *consts, int n_consts, struct ds_err *e)
{
    @autoreleasepool {
        NSError *err = nil;
        struct ds_mtl_fn *f = calloc(1, sizeof *f);
        id<MTLFunction> fn = f ? find_function(d, name, consts, n_consts, &err) : nil;
        if (fn) f->p = [d->device newComputePipelineStateWithFunction:fn error:&err];
        [fn release];
        if (f && f->p) return f;
        free(f);
        ds_fail(e, DS_EUNSUP, "Metal makes no pipeline of kernel '%s': %s", name, text_of(err));
        return NULL;
    }
}

void ds_mtl_fn_free(struct ds_mtl_fn *f)
{
    @autoreleasepool {
        [f->p release];
        free(f);
    }
}

void ds_mtl_fn_facts(struct ds_mtl_fn *f, struct ds_mtl_fn_facts *facts)
{
    *facts = (struct ds_mtl_fn_facts){ .max_threads = (int)[f->p maxTotalThreadsPerThreadgroup],
                                       .width = (int)[f->p threadExecutionWidth],
                                       .static_memory = [f->p staticThreadgroupMemoryLength] };
}

/* --- command buffers --- */

struct ds_mtl_cmd *ds_mtl_begin(struct ds_mtl *d)
{
    @autoreleasepool {
        struct ds_mtl_cmd *c = calloc(1, sizeof *c);
        if (c) c->b = [[d->queue commandBuffer] retain];
        if (c && c->b) c->enc = [[c->b computeCommandEncoder] retain];
        if (c && c->enc) return c;
        if (c) [c->b release];
        free(c);
        return NULL;
    }
}

void ds_mtl_use(struct ds_mtl_cmd *c, struct ds_mtl_fn *f) { [c->enc setComputePipelineState:f->p]; }

void ds_mtl_bind(struct ds_mtl_cmd *c, int index, struct ds_mtl_buf *b, size_t off, size_t bytes)
{
    (void)bytes;
    [c->enc setBuffer:b->b offset:off atIndex:(NSUInteger)index];
}

void ds_mtl_bytes(struct ds_mtl_cmd *c, int index, const void *p, size_t n) { [c->enc setBytes:p length:n atIndex:(NSUInteger)index]; }

void ds_mtl_dispatch(struct ds_mtl_cmd *c, const uint32_t groups[3], const uint32_t threads[3])
{
    [c->enc dispatchThreadgroups:MTLSizeMake(groups[0], groups[1], groups[2])
           threadsPerThreadgroup:MTLSizeMake(threads[0], threads[1], threads[2])];
}

void ds_mtl_end(struct ds_mtl_cmd *c)
{
    @autoreleasepool {
        [c->enc endEncoding];
        [c->b commit];
    }
}

static uint64_t ns_of(double seconds) { return seconds > 0 ? (uint64_t)(seconds * 1e9) : 0; }

void ds_mtl_wait(struct ds_mtl_cmd *c, struct ds_mtl_result *r)
{
    @autoreleasepool {
        [c->b waitUntilCompleted];
        *r = (struct ds_mtl_result){ .status = [c->b status] == MTLCommandBufferStatusCompleted ? DS_MTL_DONE : DS_MTL_FAILED,
                                     .start_ns = ns_of([c->b GPUStartTime]),
                                     .end_ns = ns_of([c->b GPUEndTime]) };
        if (r->status != DS_MTL_DONE) {
            r->code = (int)[[c->b error] code];
            snprintf(r->reason, sizeof r->reason, "%s", text_of([c->b error]));
        }
        [c->enc release];
        [c->b release];
        free(c);
    }
}
