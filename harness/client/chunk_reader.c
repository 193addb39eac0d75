/* Reads streams whose answers come in whole chunks of HTTP/1.1, and leaves everything else to Python.

A stream in mid-answer sends the same thing over and over: one or more chunks, each with lines of an event stream.
This reads such bytes from the socket, takes the frame of the chunks off, and writes the entry of the journal that
Python would have written (journal.py). What is not just that, to the byte, is handed over as it came, with its
instant: the head of an answer, its end, half a chunk, a comment, an error.

Python says by `streams[descriptor].request` which streams are in mid-answer and between two chunks; a negative
number means that the descriptor is not to be read here. Times are in ns.
*/
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the journal is little-endian"
#endif

enum { READ_BYTES = 1 << 16, READS_AT_ONCE = 8, MOST_READY = 4096, BODY = 4, MOST_SIZE_DIGITS = 6 };
enum { UNREAD = -1 }; /* of `handed.size`: nothing was read; below it is -1 - errno */

struct stream {
    int64_t request;   /* whose answer it is; negative: not read here */
    int64_t latest_ns; /* when its latest bytes arrived */
    int64_t reads;     /* made here, of this request */
    int64_t bytes;     /* of the body, read here */
    int64_t most_bytes;
};

struct handed {
    int64_t descriptor;
    int64_t events; /* as epoll told them */
    int64_t size;   /* of what was read, which lies in `arena` at `offset`; 0: the end */
    int64_t offset;
    int64_t ns; /* 0: the kernel told no instant */
};

struct look {
    int64_t epoll, now_ns, offset_ns, longest_ns, gap_ns, descriptors;
    struct stream *streams;
    struct handed *handed; /* room for MOST_READY */
    char *arena, *journal;
    int64_t arena_bytes, journal_bytes;
    int64_t n_handed, reads, short_gaps, written; /* out */
};

struct __attribute__((packed)) entry {
    uint8_t kind;
    uint32_t request;
    int64_t ns;
    uint32_t length;
};

static int64_t monotonic_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* The value of a hexadecimal digit, or -1. */
static int digit(unsigned char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Copies the bodies of the chunks in `in` to `out`; their length, or -1 where these are not whole chunks by the book. */
static int64_t unframe(const char *in, int64_t size, char *out) {
    const char *end = in + size;
    char *to = out;
    while (in < end) {
        int64_t length = 0;
        int digits = 0, value;
        while (in < end && (value = digit((unsigned char)*in)) >= 0) {
            length = length * 16 + value;
            in++;
            if (++digits > MOST_SIZE_DIGITS) return -1;
        }
        if (!digits || !length || end - in < length + 4 || in[0] != '\r' || in[1] != '\n') return -1;
        in += 2;
        memcpy(to, in, (size_t)length);
        in += length;
        if (in[0] != '\r' || in[1] != '\n') return -1;
        in += 2;
        to += length;
    }
    return to - out;
}

/* Writes what one read brought to the journal; 0 where Python has to look at it. */
static int take(struct look *l, struct stream *s, const char *in, int64_t size, int64_t ns) {
    struct entry *entry = (struct entry *)(l->journal + l->written);
    char *body = (char *)(entry + 1);
    int64_t length = unframe(in, size, body);
    /* A comment is no progress, and a line without an end may be endless: those are judged in Python. */
    if (length <= 0 || body[0] == ':' || body[length - 1] != '\n' || s->bytes + length > s->most_bytes) return 0;
    *entry = (struct entry){BODY, (uint32_t)s->request, ns, (uint32_t)length};
    l->written += (int64_t)sizeof *entry + length;
    if (ns - s->latest_ns < l->gap_ns) l->short_gaps++;
    l->reads++;
    s->latest_ns = ns;
    s->reads++;
    s->bytes += length;
    return 1;
}

static void hand_over(struct look *l, int fd, uint32_t events, int64_t size, int64_t offset, int64_t ns) {
    l->handed[l->n_handed++] = (struct handed){fd, events, size, offset, ns};
}

/* The kernel's instant of what `message` brought, in CLOCK_MONOTONIC; 0 for none. */
static int64_t instant(struct look *l, struct msghdr *message) {
    struct cmsghdr *c = CMSG_FIRSTHDR(message);
    struct timespec t;
    if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SO_TIMESTAMPNS) return 0;
    memcpy(&t, CMSG_DATA(c), sizeof t);
    return t.tv_sec * 1000000000LL + t.tv_nsec - l->offset_ns;
}

/* Read one stream until it is empty or Python has to look; returns how much of the arena is in use. */
static int64_t read_stream(struct look *l, int fd, uint32_t events, struct stream *s, int64_t used) {
    for (int left = READS_AT_ONCE; left; left--) {
        _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(struct timespec))];
        struct iovec into = {l->arena + used, READ_BYTES};
        struct msghdr message = {
            .msg_iov = &into, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        if (l->arena_bytes - used < READ_BYTES ||
            l->journal_bytes - l->written < READ_BYTES + (int64_t)sizeof(struct entry)) {
            hand_over(l, fd, events, UNREAD, used, 0);
            return used;
        }
        int64_t size = recvmsg(fd, &message, 0);
        if (size < 0 && (errno == EAGAIN || errno == EINTR)) return used;
        if (size <= 0) {
            hand_over(l, fd, events, size ? UNREAD - errno : 0, used, 0);
            return used;
        }
        int64_t ns = instant(l, &message);
        if (ns > l->now_ns) l->now_ns = monotonic_ns(); /* it came while others were read */
        int sound = ns >= s->latest_ns && ns <= l->now_ns && l->now_ns - ns <= l->longest_ns;
        if (!sound || !take(l, s, l->arena + used, size, ns)) {
            hand_over(l, fd, events, size, used, ns);
            return used + size;
        }
        if (size < READ_BYTES && events == EPOLLIN) return used; /* read empty, and not the end */
    }
    struct epoll_event again = {EPOLLIN | EPOLLRDHUP | EPOLLET, {.fd = fd}};
    epoll_ctl((int)l->epoll, EPOLL_CTL_MOD, fd, &again); /* told again of what is left */
    return used;
}

/* One look at all sockets of an epoll set; how many were ready. */
int look(struct look *l) {
    struct epoll_event ready[MOST_READY];
    int n = epoll_wait((int)l->epoll, ready, MOST_READY, 0);
    int64_t used = 0;
    l->n_handed = l->reads = l->short_gaps = l->written = 0;
    for (int i = 0; i < n; i++) {
        int fd = ready[i].data.fd;
        struct stream *s = fd < l->descriptors ? &l->streams[fd] : NULL;
        if (!s || s->request < 0)
            hand_over(l, fd, ready[i].events, UNREAD, used, 0);
        else
            used = read_stream(l, fd, ready[i].events, s, used);
    }
    return n < 0 ? 0 : n;
}
