# recv and send by raw system calls: the C library's wrappers are cancellation points, which cost two atomic
# operations each once the process has threads. Any thread.

from libc.errno cimport EAGAIN, EINTR

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
