# epoll, and recv and send as raw system calls: the C library's wrappers are cancellation points, which cost
# two atomic operations each once the process has threads. Any thread.

from libc.stdint cimport uint32_t
from libc.errno cimport EAGAIN, EINTR


cdef extern from "<sys/epoll.h>" nogil:
    enum: EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLET, EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL
    ctypedef union epoll_data_t:
        void *ptr
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epoll, int operation, int fd, epoll_event *event)
    int epoll_wait(int epoll, epoll_event *events, int count, int timeout_ms)


cdef inline int watch_socket(int epoll, int fd, void *whose, uint32_t interest, bint known) noexcept nogil:
    """Edge triggered; readers are notified of the peer's end, too. Returns as epoll_ctl."""
    cdef epoll_event event
    event.events = interest | <uint32_t> EPOLLET | (<uint32_t> EPOLLRDHUP if interest & EPOLLIN else 0)
    event.data.ptr = whose
    return epoll_ctl(epoll, EPOLL_CTL_MOD if known else EPOLL_CTL_ADD, fd, &event)


cdef inline void unwatch_socket(int epoll, int fd) noexcept nogil:
    cdef epoll_event nothing
    epoll_ctl(epoll, EPOLL_CTL_DEL, fd, &nothing)


cdef extern from "<sys/socket.h>" nogil:
    enum: MSG_DONTWAIT, MSG_NOSIGNAL, SHUT_RDWR
    int shutdown(int fd, int how)

cdef extern from *:
    """
    #include <stddef.h>
    #include <sys/syscall.h>
    #include <unistd.h>

    static ssize_t receive_now(int fd, void *to, size_t length, int flags)
    {
        return syscall(SYS_recvfrom, fd, to, length, flags, NULL, NULL);
    }

    static ssize_t send_now(int fd, const void *data, size_t length, int flags)
    {
        return syscall(SYS_sendto, fd, data, length, flags, NULL, 0);
    }
    """
    ssize_t receive_now(int fd, void *to, size_t length, int flags) noexcept nogil
    ssize_t send_now(int fd, const void *data, size_t length, int flags) noexcept nogil


cdef inline bint is_transient(int fault) noexcept nogil:
    return fault == EAGAIN or fault == EINTR
