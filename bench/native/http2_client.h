/* The functions of libnghttp2.so.14 that a client session calls: its headers need not be installed. */
#ifndef BENCH_HTTP2_CLIENT_H
#define BENCH_HTTP2_CLIENT_H

#include "http2/nghttp2.h"

int nghttp2_session_callbacks_new(nghttp2_session_callbacks **);
void nghttp2_session_callbacks_set_on_header_callback(nghttp2_session_callbacks *, nghttp2_on_header);
void nghttp2_session_callbacks_set_on_data_chunk_recv_callback(nghttp2_session_callbacks *, nghttp2_on_data);
void nghttp2_session_callbacks_set_on_stream_close_callback(nghttp2_session_callbacks *, nghttp2_on_close);
int nghttp2_session_client_new(nghttp2_session **, const nghttp2_session_callbacks *, void *user);
int nghttp2_submit_settings(nghttp2_session *, uint8_t flags, const nghttp2_settings_entry *, size_t);
int nghttp2_session_set_local_window_size(nghttp2_session *, uint8_t flags, int32_t stream, int32_t size);
int32_t nghttp2_submit_request(
    nghttp2_session *, const void *priority, const nghttp2_nv *, size_t, const nghttp2_data_provider *, void *stream_user);
void *nghttp2_session_get_stream_user_data(nghttp2_session *, int32_t stream);
ssize_t nghttp2_session_mem_recv(nghttp2_session *, const uint8_t *, size_t);
ssize_t nghttp2_session_mem_send(nghttp2_session *, const uint8_t **);
const char *nghttp2_strerror(int);

#endif
