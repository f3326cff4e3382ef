/* The part of Foundation that mtl_apple.m names, declared from its public documentation for a syntax check on other systems.
 * Wrong here means unproven there: see docs/metal.md. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef signed char BOOL;
#define YES ((BOOL)1)
#define NO ((BOOL)0)
#define nil ((id)0)
typedef unsigned long NSUInteger;
typedef long NSInteger;

@protocol NSObject
- (instancetype)retain;
- (oneway void)release;
- (instancetype)autorelease;
@end

__attribute__((objc_root_class))
@interface NSObject <NSObject>
+ (instancetype)alloc;
- (instancetype)init;
@end

@interface NSString : NSObject
+ (instancetype)stringWithUTF8String:(const char *)s;
@property (readonly) const char *UTF8String;
@end

@interface NSError : NSObject
@property (readonly) NSInteger code;
@property (readonly, copy) NSString *localizedDescription;
@end

@interface NSArray<ObjectType> : NSObject
@property (readonly) NSUInteger count;
- (ObjectType)objectAtIndex:(NSUInteger)i;
- (BOOL)containsObject:(ObjectType)x;
@end

typedef NSInteger NSProcessInfoThermalState;
@interface NSProcessInfo : NSObject
@property (class, readonly) NSProcessInfo *processInfo;
@property (readonly) NSProcessInfoThermalState thermalState;
@property (readonly, getter=isLowPowerModeEnabled) BOOL lowPowerModeEnabled;
@end
