// The truth server: streams tokens on an exact schedule and knows when it sent each one.
//
//   truth_server PORT LOG TTFT_US ITL_US SPREAD_US
//
// prints "listening on PORT" (0: the kernel chooses) and speaks the OpenAI API over HTTP/1.1 with keep-alive:
// POST /v1/completions and /v1/chat/completions, streamed or not, GET /v1/models and /health. A streamed request gets
// max_tokens tokens, the first TTFT_US + s after its last byte was read, where s spreads the requests evenly over
// SPREAD_US, the others ITL_US apart on that schedule: a late one makes no later one late. One write a token.
// It ends at SIGTERM or when its standard input ends, and then writes LOG (see log.py for the format): per request
// when it had been read, when its first token was due, and the instant before each token's write.
// truth_server.py is the same in Python; the two send the same bytes.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { ID_BYTES = 64, BATCH = 32, MOST_TOKENS = 1 << 24 };

// One streamed request; its head is written to the log as it stands here.
typedef struct {
    char id[ID_BYTES];
    int64_t received_ns, due_ns;
    uint32_t asked, sent;
} Head;

typedef struct Request {
    Head head;
    int64_t *sends;
    struct Request *next;
} Request;

typedef struct {
    int fd;
    char *in, *out;          // bytes read and not understood yet; bytes the socket would not take yet
    size_t in_length, in_room, out_length, out_room;
    Request *request;        // being streamed, NULL for none
    int64_t due_ns;
    size_t place;            // in the heap while a request is streamed
    int chat, prompt_tokens, gone;
    char event[512];         // one token as it goes over the wire, equal for all but the last
    size_t event_length;
} Connection;

static int64_t itl_ns, held;
static uint64_t ttft_us, spread_us;
static uint32_t streamed;
static Request *first_request, **next_request = &first_request;
static Connection **heap;
static size_t heap_length, heap_room;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void *room(void *memory, size_t bytes) {
    void *grown = realloc(memory, bytes);
    if (grown) return grown;
    fputs("truth_server: out of memory\n", stderr);
    exit(1);
}

// A binary heap of the connections that stream, the one due next on top.

static void put_at(size_t place, Connection *c) {
    heap[place] = c;
    c->place = place;
}

static void settle(size_t place, Connection *c) {
    while (place && heap[(place - 1) / 2]->due_ns > c->due_ns) {
        put_at(place, heap[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    for (;;) {
        size_t child = 2 * place + 1;
        if (child >= heap_length) break;
        if (child + 1 < heap_length && heap[child + 1]->due_ns < heap[child]->due_ns) child++;
        if (heap[child]->due_ns >= c->due_ns) break;
        put_at(place, heap[child]);
        place = child;
    }
    put_at(place, c);
}

static void heap_add(Connection *c) {
    if (heap_length == heap_room) heap = room(heap, (heap_room = heap_room * 2 + 64) * sizeof *heap);
    settle(heap_length++, c);
}

static void heap_remove(Connection *c) {
    Connection *last = heap[--heap_length];
    if (last != c) settle(c->place, last);
}

// Writing

static void flush_out(Connection *c) {
    size_t done = 0;
    while (done < c->out_length) {
        ssize_t n = send(c->fd, c->out + done, c->out_length - done, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno != EAGAIN) c->gone = 1;
            break;
        }
        done += n;
    }
    memmove(c->out, c->out + done, c->out_length - done);
    c->out_length -= done;
}

static void put(Connection *c, const char *data, size_t length) {
    ssize_t n = 0;
    if (!c->out_length) {
        n = send(c->fd, data, length, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) c->gone = 1;
        if (n < 0) n = 0;
    }
    if ((size_t)n == length || c->gone) return;
    held++;
    if (c->out_length + length > c->out_room) c->out = room(c->out, c->out_room = 2 * (c->out_length + length));
    memcpy(c->out + c->out_length, data + n, length - n);
    c->out_length += length - n;
}

// Appends to `to` one HTTP chunk that holds one server-sent event; returns its length.
static size_t event(char *to, const char *data) {
    return sprintf(to, "%zx\r\ndata: %s\n\n\r\n", strlen(data) + 8, data);
}

static size_t token_event(char *to, const Connection *c, const char *finish) {
    char data[400];
    if (c->chat)
        sprintf(data, "{\"id\":\"chatcmpl-%s\",\"object\":\"chat.completion.chunk\",\"created\":0,\"model\":\"truth\","
                      "\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"finish_reason\":%s}]}",
                c->request->head.id, finish);
    else
        sprintf(data, "{\"id\":\"cmpl-%s\",\"object\":\"text_completion\",\"created\":0,\"model\":\"truth\","
                      "\"choices\":[{\"index\":0,\"text\":\" word\",\"logprobs\":null,\"finish_reason\":%s}]}",
                c->request->head.id, finish);
    return event(to, data);
}

static void stream_head(Connection *c) {
    char text[1024], data[400];
    size_t length = sprintf(text, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                                  "Transfer-Encoding: chunked\r\n\r\n");
    if (c->chat) {  // a delta without text, as engines send it; it is no token
        sprintf(data, "{\"id\":\"chatcmpl-%s\",\"object\":\"chat.completion.chunk\",\"created\":0,\"model\":\"truth\","
                      "\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                      "\"finish_reason\":null}]}", c->request->head.id);
        length += event(text + length, data);
    }
    put(c, text, length);
}

static void stream_end(Connection *c) {
    char text[1500], data[400];
    size_t length = token_event(text, c, "\"length\"");
    const Head *head = &c->request->head;
    sprintf(data, "{\"id\":\"%s-%s\",\"object\":\"%s\",\"created\":0,\"model\":\"truth\",\"choices\":[],"
                  "\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%u,\"total_tokens\":%u}}",
            c->chat ? "chatcmpl" : "cmpl", head->id, c->chat ? "chat.completion.chunk" : "text_completion",
            c->prompt_tokens, head->asked, head->asked + c->prompt_tokens);
    length += event(text + length, data);
    length += event(text + length, "[DONE]");
    length += sprintf(text + length, "0\r\n\r\n");
    put(c, text, length);
}

static void answer(Connection *c, const char *status, const char *body) {
    char text[1024];
    put(c, text, sprintf(text, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", status,
                         strlen(body), body));
}

// Reading

// The number after `name` in a JSON body, `otherwise` where there is none. Bodies come from a load generator: names
// are looked for as they are written, not parsed.
static long number_in(const char *body, const char *name, long otherwise) {
    const char *at = strstr(body, name);
    if (!at || !(at = strchr(at, ':'))) return otherwise;
    long value = strtol(at + 1, NULL, 10);
    return value > 0 && value <= MOST_TOKENS ? value : otherwise;
}

static int ids_in(const char *body) {
    const char *at = strstr(body, "\"prompt\":[");
    if (!at) return 1;
    int count = 1;
    for (at += 10; *at && *at != ']'; at++) count += *at == ',';
    return count;
}

static void header(const char *head, const char *name, char *value, size_t most) {
    const char *at = strcasestr(head, name);
    value[0] = 0;
    if (!at) return;
    at += strlen(name);
    at += strspn(at, " ");
    size_t length = strcspn(at, "\r\n\"\\");
    if (length > most) length = most;
    memcpy(value, at, length);
    value[length] = 0;
}

static void start_stream(Connection *c, const char *head, const char *body, int64_t received_ns) {
    Request *request = calloc(1, sizeof *request);
    if (!request) exit(1);
    header(head, "\r\nX-Request-Id:", request->head.id, ID_BYTES - 1);
    request->head.received_ns = received_ns;
    uint64_t part = (uint32_t)(streamed++ * 2654435769u);  // multiples of the golden ratio fill [0, 1) evenly
    request->head.due_ns = received_ns + (int64_t)(ttft_us + (spread_us * part >> 32)) * 1000;
    request->head.asked = number_in(body, "\"max_completion_tokens\"", number_in(body, "\"max_tokens\"", 16));
    request->sends = room(NULL, request->head.asked * sizeof(int64_t));
    *next_request = request;
    next_request = &request->next;
    c->request = request;
    c->prompt_tokens = ids_in(body);
    c->event_length = token_event(c->event, c, "null");
    c->due_ns = request->head.due_ns;
    heap_add(c);
    stream_head(c);
}

static void take(Connection *c, const char *head, const char *body, int64_t received_ns) {
    if (!strncmp(head, "GET ", 4)) {
        if (!strncmp(head + 4, "/v1/models", 10))
            answer(c, "200 OK", "{\"object\":\"list\",\"data\":[{\"id\":\"truth\",\"object\":\"model\",\"created\":0,"
                                "\"owned_by\":\"truth\",\"max_model_len\":131072}]}");
        else
            answer(c, "200 OK", "{\"status\":\"ok\"}");
        return;
    }
    c->chat = !strncmp(head, "POST /v1/chat/completions ", 26);
    if (!c->chat && strncmp(head, "POST /v1/completions ", 21))
        answer(c, "404 Not Found", "{\"error\":{\"message\":\"there is no such path\"}}");
    else if (strstr(body, "\"stream\":true") || strstr(body, "\"stream\": true"))
        start_stream(c, head, body, received_ns);
    else if (c->chat)
        answer(c, "200 OK", "{\"id\":\"chatcmpl-\",\"object\":\"chat.completion\",\"created\":0,\"model\":\"truth\","
                            "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\" word\"},"
                            "\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1,"
                            "\"total_tokens\":2}}");
    else
        answer(c, "200 OK", "{\"id\":\"cmpl-\",\"object\":\"text_completion\",\"created\":0,\"model\":\"truth\","
                            "\"choices\":[{\"index\":0,\"text\":\" word\",\"logprobs\":null,\"finish_reason\":\"length\"}],"
                            "\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1,\"total_tokens\":2}}");
}

// Takes every whole request there is; a next one waits until the stream before it is done.
static void understand(Connection *c) {
    while (!c->request && !c->gone && c->in_length) {
        c->in[c->in_length] = 0;
        char *end = strstr(c->in, "\r\n\r\n"), length_text[24];
        if (!end) return;
        end[2] = 0;  // the head is a string of its own now
        header(c->in, "\r\nContent-Length:", length_text, sizeof length_text - 1);
        size_t head = end - c->in + 4, whole = head + strtoul(length_text, NULL, 10);
        if (c->in_length < whole) {
            end[2] = '\r';
            return;
        }
        int64_t received_ns = now_ns();
        char after = c->in[whole];
        c->in[whole] = 0;
        take(c, c->in, c->in + head, received_ns);
        c->in[whole] = after;
        memmove(c->in, c->in + whole, c->in_length - whole);
        c->in_length -= whole;
    }
}

static void read_in(Connection *c) {
    for (;;) {
        if (c->in_room < c->in_length + 65537) c->in = room(c->in, c->in_room = 2 * c->in_length + 65537);
        ssize_t n = recv(c->fd, c->in + c->in_length, c->in_room - c->in_length - 1, 0);
        if (n > 0) c->in_length += n;
        if (n == 0 || (n < 0 && errno != EAGAIN)) c->gone = 1;
        if (n <= 0) return;
    }
}

static void send_token(Connection *c) {
    Request *request = c->request;
    int last = request->head.sent + 1 == request->head.asked;
    request->sends[request->head.sent++] = now_ns();
    if (!last) {
        put(c, c->event, c->event_length);
        c->due_ns += itl_ns;
        settle(c->place, c);
        return;
    }
    stream_end(c);
    heap_remove(c);
    c->request = NULL;
    understand(c);
}

static void drop(Connection *c) {
    if (c->request) heap_remove(c);
    close(c->fd);
    free(c->in);
    free(c->out);
    free(c);
}

static int write_log(const char *path) {
    FILE *file = fopen(path, "wb");
    if (!file) return 1;
    const struct { char magic[8]; int64_t itl_ns, held; } start = {"TRUTH 1", itl_ns, held};
    fwrite(&start, sizeof start, 1, file);
    for (Request *r = first_request; r; r = r->next) {
        fwrite(&r->head, sizeof r->head, 1, file);
        fwrite(r->sends, sizeof *r->sends, r->head.sent, file);
    }
    return fclose(file) != 0;
}

static void watch(int poll, int fd, void *what, uint32_t events) {
    struct epoll_event e = {.events = events, .data.ptr = what};
    if (epoll_ctl(poll, EPOLL_CTL_ADD, fd, &e)) {
        perror("truth_server: epoll_ctl");
        exit(1);
    }
}

static int listen_on(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (void *)&address, sizeof address) || listen(fd, 4096) ||
        getsockname(fd, (void *)&address, &length)) {
        perror("truth_server: listen");
        exit(1);
    }
    printf("listening on %d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

static void welcome(int poll, int listener) {
    int fd, one = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        Connection *c = calloc(1, sizeof *c);
        if (!c) exit(1);
        c->fd = fd;
        watch(poll, fd, c, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    }
}

int main(int count, char **argument) {
    if (count != 6) {
        fputs("usage: truth_server PORT LOG TTFT_US ITL_US SPREAD_US\n", stderr);
        return 2;
    }
    ttft_us = strtoull(argument[3], NULL, 10);
    itl_ns = strtoll(argument[4], NULL, 10) * 1000;
    spread_us = strtoull(argument[5], NULL, 10);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, NULL);

    // What an event is about is told by its pointer: one of these descriptors, or else a connection.
    int poll = epoll_create1(EPOLL_CLOEXEC), listener = listen_on(atoi(argument[1]));
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC), input = 0;
    int signals = signalfd(-1, &ends, SFD_NONBLOCK | SFD_CLOEXEC), ending = 0;
    watch(poll, listener, &listener, EPOLLIN);
    watch(poll, timer, &timer, EPOLLIN);
    watch(poll, signals, &signals, EPOLLIN);
    watch(poll, 0, &input, EPOLLIN);
    struct epoll_event events[256];
    int64_t armed_ns = 0;
    while (!ending) {
        int waiting = !heap_length || heap[0]->due_ns > now_ns();
        if (waiting && heap_length && heap[0]->due_ns != armed_ns) {
            armed_ns = heap[0]->due_ns;
            struct itimerspec at = {.it_value = {armed_ns / 1000000000, armed_ns % 1000000000}};
            timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
        }
        int n = epoll_wait(poll, events, 256, waiting ? -1 : 0);
        for (int i = 0; i < n; i++) {
            void *what = events[i].data.ptr;
            char scrap[256];
            if (what == &listener) welcome(poll, listener);
            else if (what == &timer) armed_ns = read(timer, scrap, 8) < 0 ? armed_ns : 0;
            else if (what == &signals) ending = 1;
            else if (what == &input) ending |= read(0, scrap, sizeof scrap) <= 0;
            else {
                Connection *c = what;
                if (events[i].events & ~EPOLLOUT) read_in(c);
                if (c->out_length) flush_out(c);
                understand(c);
                if (c->gone) drop(c);
            }
        }
        // A bounded number of tokens between two looks at the sockets, so that a request is never read late.
        for (int sent = 0; sent < BATCH && heap_length && heap[0]->due_ns <= now_ns(); sent++) send_token(heap[0]);
    }
    return write_log(argument[2]);
}
