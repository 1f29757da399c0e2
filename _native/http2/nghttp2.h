/* The functions of libnghttp2.so.14 that a server session calls, found at run time when the first HTTP/2 connection comes:
 * the build needs no headers, and a broker without such connections does not load it. These prototypes have not changed
 * since nghttp2 1.31 (2018). Any thread. */
#ifndef FIREARROW_NGHTTP2_H
#define FIREARROW_NGHTTP2_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define NGHTTP2_LIBRARY "libnghttp2.so.14"

typedef struct nghttp2_session nghttp2_session;
typedef struct nghttp2_session_callbacks nghttp2_session_callbacks;
typedef struct nghttp2_option nghttp2_option;

typedef struct { size_t length; int32_t stream_id; uint8_t type, flags, reserved; } nghttp2_frame_hd;
typedef struct { nghttp2_frame_hd hd; } nghttp2_frame;  /* the head that all frames have */
typedef struct { nghttp2_frame_hd hd; int32_t last_stream_id; uint32_t error_code; } nghttp2_goaway;  /* how it begins */
typedef struct { uint8_t *name, *value; size_t namelen, valuelen; uint8_t flags; } nghttp2_nv;
typedef struct { int32_t settings_id; uint32_t value; } nghttp2_settings_entry;
typedef union { int fd; void *ptr; } nghttp2_data_source;
typedef ssize_t (*nghttp2_read)(
    nghttp2_session *, int32_t stream, uint8_t *to, size_t length, uint32_t *flags, nghttp2_data_source *, void *user);
typedef struct { nghttp2_data_source source; nghttp2_read read_callback; } nghttp2_data_provider;

typedef int (*nghttp2_on_frame)(nghttp2_session *, const nghttp2_frame *, void *user);
typedef int (*nghttp2_on_frame_hd)(nghttp2_session *, const nghttp2_frame_hd *, void *user);
typedef int (*nghttp2_on_header)(
    nghttp2_session *, const nghttp2_frame *, const uint8_t *name, size_t name_length, const uint8_t *value,
    size_t value_length, uint8_t flags, void *user);
typedef int (*nghttp2_on_data)(
    nghttp2_session *, uint8_t flags, int32_t stream, const uint8_t *data, size_t length, void *user);
typedef int (*nghttp2_on_close)(nghttp2_session *, int32_t stream, uint32_t error, void *user);

typedef struct {
    int (*callbacks_new)(nghttp2_session_callbacks **);
    void (*set_on_begin_frame)(nghttp2_session_callbacks *, nghttp2_on_frame_hd);
    void (*set_on_begin_headers)(nghttp2_session_callbacks *, nghttp2_on_frame);
    void (*set_on_header)(nghttp2_session_callbacks *, nghttp2_on_header);
    void (*set_on_frame_recv)(nghttp2_session_callbacks *, nghttp2_on_frame);
    void (*set_on_frame_send)(nghttp2_session_callbacks *, nghttp2_on_frame);
    void (*set_on_data_chunk_recv)(nghttp2_session_callbacks *, nghttp2_on_data);
    void (*set_on_stream_close)(nghttp2_session_callbacks *, nghttp2_on_close);
    int (*option_new)(nghttp2_option **);
    void (*option_no_closed_streams)(nghttp2_option *, int);
    int (*server_new)(nghttp2_session **, const nghttp2_session_callbacks *, void *user, const nghttp2_option *);
    void (*session_del)(nghttp2_session *);
    ssize_t (*mem_recv)(nghttp2_session *, const uint8_t *, size_t);
    ssize_t (*mem_send)(nghttp2_session *, const uint8_t **);
    int (*want_read)(nghttp2_session *);
    int (*want_write)(nghttp2_session *);
    void *(*stream_user)(nghttp2_session *, int32_t stream);
    int (*set_stream_user)(nghttp2_session *, int32_t stream, void *);
    int (*submit_settings)(nghttp2_session *, uint8_t flags, const nghttp2_settings_entry *, size_t);
    int (*set_window)(nghttp2_session *, uint8_t flags, int32_t stream, int32_t size);
    int (*submit_response)(
        nghttp2_session *, int32_t stream, const nghttp2_nv *, size_t, const nghttp2_data_provider *);
    int (*submit_trailer)(nghttp2_session *, int32_t stream, const nghttp2_nv *, size_t);
    int (*submit_reset)(nghttp2_session *, uint8_t flags, int32_t stream, uint32_t error);
    int (*resume_data)(nghttp2_session *, int32_t stream);
    int (*terminate)(nghttp2_session *, uint32_t error);
    int (*shutdown_notice)(nghttp2_session *);
    const char *(*error_text)(int error);
    const char *(*http2_error)(uint32_t code);
} Nghttp2;

/* Sets the members of `found`. Returns NULL, or what is missing. */
static inline const char *nghttp2_load(Nghttp2 *found)
{
    static const struct { size_t offset; const char *name; } functions[] = {
#define FUNCTION(member, name) { offsetof(Nghttp2, member), "nghttp2_" name }
        FUNCTION(callbacks_new, "session_callbacks_new"),
        FUNCTION(set_on_begin_frame, "session_callbacks_set_on_begin_frame_callback"),
        FUNCTION(set_on_begin_headers, "session_callbacks_set_on_begin_headers_callback"),
        FUNCTION(set_on_header, "session_callbacks_set_on_header_callback"),
        FUNCTION(set_on_frame_recv, "session_callbacks_set_on_frame_recv_callback"),
        FUNCTION(set_on_frame_send, "session_callbacks_set_on_frame_send_callback"),
        FUNCTION(set_on_data_chunk_recv, "session_callbacks_set_on_data_chunk_recv_callback"),
        FUNCTION(set_on_stream_close, "session_callbacks_set_on_stream_close_callback"),
        FUNCTION(option_new, "option_new"), FUNCTION(option_no_closed_streams, "option_set_no_closed_streams"),
        FUNCTION(server_new, "session_server_new2"), FUNCTION(session_del, "session_del"),
        FUNCTION(mem_recv, "session_mem_recv"), FUNCTION(mem_send, "session_mem_send"),
        FUNCTION(want_read, "session_want_read"), FUNCTION(want_write, "session_want_write"),
        FUNCTION(stream_user, "session_get_stream_user_data"),
        FUNCTION(set_stream_user, "session_set_stream_user_data"),
        FUNCTION(submit_settings, "submit_settings"), FUNCTION(set_window, "session_set_local_window_size"),
        FUNCTION(submit_response, "submit_response"), FUNCTION(submit_trailer, "submit_trailer"),
        FUNCTION(submit_reset, "submit_rst_stream"), FUNCTION(resume_data, "session_resume_data"),
        FUNCTION(terminate, "session_terminate_session"), FUNCTION(shutdown_notice, "submit_shutdown_notice"),
        FUNCTION(error_text, "strerror"), FUNCTION(http2_error, "http2_strerror"),
#undef FUNCTION
    };
    void *library = dlopen(NGHTTP2_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) return NGHTTP2_LIBRARY;
    for (size_t n = 0; n < sizeof functions / sizeof *functions; n++) {
        void *function = dlsym(library, functions[n].name);
        if (!function) return functions[n].name;
        *(void **) ((char *) found + functions[n].offset) = function;
    }
    return NULL;
}

#endif
