# libnghttp2, as nghttp2.h finds it; `nghttp2` in session.pyx is the one copy of its functions. Any thread.

from libc.stdint cimport int32_t, uint8_t, uint32_t


cdef extern from "http2/nghttp2.h":
    const char *NGHTTP2_LIBRARY
    ctypedef struct nghttp2_session
    ctypedef struct nghttp2_session_callbacks
    ctypedef struct nghttp2_option
    ctypedef struct nghttp2_frame_hd:
        size_t length
        int32_t stream_id
        uint8_t type, flags
    ctypedef struct nghttp2_frame:
        nghttp2_frame_hd hd
    ctypedef struct nghttp2_goaway:
        uint32_t error_code
    ctypedef struct nghttp2_nv:
        uint8_t *name
        uint8_t *value
        size_t namelen, valuelen
        uint8_t flags
    ctypedef struct nghttp2_settings_entry:
        int32_t settings_id
        uint32_t value
    ctypedef union nghttp2_data_source:
        void *ptr
    ctypedef ssize_t (*nghttp2_read)(
        nghttp2_session *, int32_t, uint8_t *, size_t, uint32_t *, nghttp2_data_source *, void *
    ) noexcept
    ctypedef struct nghttp2_data_provider:
        nghttp2_data_source source
        nghttp2_read read_callback
    ctypedef int (*nghttp2_on_frame)(nghttp2_session *, const nghttp2_frame *, void *) noexcept
    ctypedef int (*nghttp2_on_frame_hd)(nghttp2_session *, const nghttp2_frame_hd *, void *) noexcept
    ctypedef int (*nghttp2_on_header)(
        nghttp2_session *, const nghttp2_frame *, const uint8_t *, size_t, const uint8_t *, size_t, uint8_t,
        void *,
    ) noexcept
    ctypedef int (*nghttp2_on_data)(
        nghttp2_session *, uint8_t, int32_t, const uint8_t *, size_t, void *
    ) noexcept
    ctypedef int (*nghttp2_on_close)(nghttp2_session *, int32_t, uint32_t, void *) noexcept

    # called with the GIL held, as callbacks run in it
    ctypedef struct Nghttp2:
        int (*callbacks_new)(nghttp2_session_callbacks **) noexcept
        void (*set_on_begin_frame)(nghttp2_session_callbacks *, nghttp2_on_frame_hd) noexcept
        void (*set_on_begin_headers)(nghttp2_session_callbacks *, nghttp2_on_frame) noexcept
        void (*set_on_header)(nghttp2_session_callbacks *, nghttp2_on_header) noexcept
        void (*set_on_frame_recv)(nghttp2_session_callbacks *, nghttp2_on_frame) noexcept
        void (*set_on_frame_send)(nghttp2_session_callbacks *, nghttp2_on_frame) noexcept
        void (*set_on_data_chunk_recv)(nghttp2_session_callbacks *, nghttp2_on_data) noexcept
        void (*set_on_stream_close)(nghttp2_session_callbacks *, nghttp2_on_close) noexcept
        int (*option_new)(nghttp2_option **) noexcept
        void (*option_no_closed_streams)(nghttp2_option *, int) noexcept
        int (*server_new)(
            nghttp2_session **, const nghttp2_session_callbacks *, void *, const nghttp2_option *
        ) noexcept
        void (*session_del)(nghttp2_session *) noexcept
        ssize_t (*mem_recv)(nghttp2_session *, const uint8_t *, size_t) noexcept
        ssize_t (*mem_send)(nghttp2_session *, const uint8_t **) noexcept
        int (*want_read)(nghttp2_session *) noexcept
        int (*want_write)(nghttp2_session *) noexcept
        void *(*stream_user)(nghttp2_session *, int32_t) noexcept
        int (*set_stream_user)(nghttp2_session *, int32_t, void *) noexcept
        int (*submit_settings)(
            nghttp2_session *, uint8_t, const nghttp2_settings_entry *, size_t
        ) noexcept
        int (*set_window)(nghttp2_session *, uint8_t, int32_t, int32_t) noexcept
        int (*submit_response)(
            nghttp2_session *, int32_t, const nghttp2_nv *, size_t, const nghttp2_data_provider *
        ) noexcept
        int (*submit_trailer)(nghttp2_session *, int32_t, const nghttp2_nv *, size_t) noexcept
        int (*submit_reset)(nghttp2_session *, uint8_t, int32_t, uint32_t) noexcept
        int (*resume_data)(nghttp2_session *, int32_t) noexcept
        int (*terminate)(nghttp2_session *, uint32_t) noexcept
        int (*shutdown_notice)(nghttp2_session *) noexcept
        const char *(*error_text)(int) noexcept
        const char *(*http2_error)(uint32_t) noexcept
    const char *nghttp2_load(Nghttp2 *found)
