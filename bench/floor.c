/* The physical limit: servers that do nothing but move the bytes. What a broker can be measured against.
 *
 *   floor sink PORT FILE SEND_BUFFER ANSWER_BYTES none|fdatasync
 *       takes the same framed requests as a broker, writes the bytes to a file as they arrive, and answers each whole
 *       frame; with fdatasync the answer waits for a group-committed fdatasync
 *   floor source PORT FILE SEND_BUFFER PIECE_BYTES sendfile|write
 *       answers each request with the next piece of the file: sendfile, or pread and send
 *
 * One thread and epoll; one more thread for fdatasync. SEND_BUFFER is SO_SNDBUF, -1 leaves it to the kernel.
 * A mistake ends the process: it serves a benchmark on loopback, nobody else.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FDS = 1024, READ_BYTES = 1 << 18, REQUEST_BYTES = 1 << 16, OUT_BYTES = 1 << 20, WRITE_BYTES = 1 << 17 };
enum { HEAD_BYTES = 12 }; /* length, API and version, correlation id */

struct connection {
    int fd;
    uint32_t events;
    /* sink: where it is in the frame that arrives, and its answers: sent <= synced <= syncing <= end, all in `out` */
    char head[HEAD_BYTES];
    size_t head_bytes, frame_left;
    size_t sent, synced, syncing, end;
    char *out;
    /* source: requests that have arrived, and the piece that is being sent */
    char *in;
    size_t in_bytes, left;
    off_t position, size;
};

static struct connection *connections[MAX_FDS];
static int epoll_fd, file_fd, sync_begin_fd, sync_end_fd, open_count;
static int is_sink, is_synced, is_sendfile, is_syncing, needs_sync;
static size_t answer_bytes, piece_bytes;
static char buffer[READ_BYTES];

static void check(int good, const char *what) {
    if (!good) {
        perror(what);
        exit(1);
    }
}

static void watch(struct connection *c, uint32_t events) {
    if (c->events != events) {
        struct epoll_event event = {.events = c->events = events, .data.fd = c->fd};
        check(epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &event) == 0, "epoll_ctl");
    }
}

static void close_connection(struct connection *c) {
    connections[c->fd] = NULL;
    close(c->fd);
    free(c->out);
    free(c->in);
    free(c);
    open_count--;
}

static void accept_connection(int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK), one = 1;
    check(fd >= 0 && fd < MAX_FDS, "accept");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct connection *c = connections[fd] = calloc(1, sizeof *c);
    check(c != NULL, "calloc");
    c->fd = fd;
    c->events = EPOLLIN;
    char **space = is_sink ? &c->out : &c->in;
    *space = malloc(is_sink ? OUT_BYTES : REQUEST_BYTES);
    check(*space != NULL, "malloc");
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    check(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
    /* A run that starts on a quiet server starts the file afresh. */
    if (open_count++ == 0 && is_sink)
        check(ftruncate(file_fd, 0) == 0 && lseek(file_fd, 0, SEEK_SET) == 0, "truncate");
}

/* ---- sink ---- */

/* Send the answers that may be sent; 0 if the connection is gone. */
static int send_answers(struct connection *c) {
    while (c->sent < c->synced) {
        ssize_t done = send(c->fd, c->out + c->sent, c->synced - c->sent, MSG_NOSIGNAL);
        if (done < 0 && errno != EAGAIN)
            return 0;
        if (done < 0)
            break;
        c->sent += done;
    }
    if (c->sent == c->end)
        c->sent = c->synced = c->syncing = c->end = 0;
    watch(c, c->sent < c->synced ? EPOLLIN | EPOLLOUT : EPOLLIN);
    return 1;
}

static void add_answer(struct connection *c) {
    if (c->end + answer_bytes > OUT_BYTES && c->sent) {
        memmove(c->out, c->out + c->sent, c->end - c->sent);
        c->synced -= c->sent, c->syncing -= c->sent, c->end -= c->sent, c->sent = 0;
    }
    check(c->end + answer_bytes <= OUT_BYTES, "too many answers wait");
    char *answer = c->out + c->end;
    uint32_t size = htonl(answer_bytes - 4);
    memset(answer, 0, answer_bytes);
    memcpy(answer, &size, 4);
    memcpy(answer + 4, c->head + 8, 4);
    c->end += answer_bytes;
}

static void take_frames(struct connection *c, const char *data, size_t count) {
    while (count) {
        if (c->head_bytes < HEAD_BYTES) {
            size_t part = HEAD_BYTES - c->head_bytes < count ? HEAD_BYTES - c->head_bytes : count;
            memcpy(c->head + c->head_bytes, data, part);
            c->head_bytes += part, data += part, count -= part;
            if (c->head_bytes < HEAD_BYTES)
                return;
            uint32_t size;
            memcpy(&size, c->head, 4);
            c->frame_left = ntohl(size) - (HEAD_BYTES - 4);
        }
        size_t part = c->frame_left < count ? c->frame_left : count;
        c->frame_left -= part, data += part, count -= part;
        if (c->frame_left == 0) {
            add_answer(c);
            c->head_bytes = 0;
        }
    }
}

static int sink_ready(struct connection *c, uint32_t events) {
    if (events & EPOLLOUT)
        return send_answers(c);
    ssize_t count = recv(c->fd, buffer, READ_BYTES, 0);
    if (count <= 0)
        return count < 0 && errno == EAGAIN;
    for (ssize_t at = 0; at < count;) {
        ssize_t done = write(file_fd, buffer + at, count - at);
        check(done > 0, "write");
        at += done;
    }
    take_frames(c, buffer, count);
    if (is_synced) {
        needs_sync |= c->end > c->syncing;
        return 1;
    }
    c->syncing = c->synced = c->end;
    return send_answers(c);
}

static void begin_sync(void) {
    for (int fd = 0; fd < MAX_FDS; fd++)
        if (connections[fd])
            connections[fd]->syncing = connections[fd]->end;
    needs_sync = 0;
    is_syncing = 1;
    check(eventfd_write(sync_begin_fd, 1) == 0, "eventfd");
}

static void end_sync(void) {
    eventfd_t value;
    check(eventfd_read(sync_end_fd, &value) == 0, "eventfd");
    is_syncing = 0;
    for (int fd = 0; fd < MAX_FDS; fd++) {
        struct connection *c = connections[fd];
        if (c && c->synced < c->syncing) {
            c->synced = c->syncing;
            if (!send_answers(c))
                close_connection(c);
        }
    }
}

static void *sync_thread(void *unused) {
    for (eventfd_t value;;) {
        check(eventfd_read(sync_begin_fd, &value) == 0, "eventfd");
        check(fdatasync(file_fd) == 0, "fdatasync");
        check(eventfd_write(sync_end_fd, 1) == 0, "eventfd");
    }
    return unused;
}

/* ---- source ---- */

/* Send what is left of the piece: 1 if all is sent, 0 if the socket is full, -1 if the connection is gone. */
static int push(struct connection *c) {
    while (c->left) {
        ssize_t done;
        if (is_sendfile) {
            off_t at = c->position;
            done = sendfile(c->fd, file_fd, &at, c->left);
        } else {
            ssize_t count = pread(file_fd, buffer, c->left < WRITE_BYTES ? c->left : WRITE_BYTES, c->position);
            check(count > 0, "pread");
            done = send(c->fd, buffer, count, MSG_NOSIGNAL);
        }
        if (done < 0)
            return errno == EAGAIN ? 0 : -1;
        check(done > 0, "the file became shorter");
        c->position += done;
        c->left -= done;
    }
    return 1;
}

/* Answer the next whole request, if there is one: like `push`. */
static int begin_piece(struct connection *c) {
    uint32_t size;
    if (c->in_bytes < 4)
        return 0;
    memcpy(&size, c->in, 4);
    size = ntohl(size) + 4;
    check(size <= REQUEST_BYTES, "a request is too large");
    if (c->in_bytes < size)
        return 0;
    c->in_bytes -= size;
    memmove(c->in, c->in + size, c->in_bytes);
    if (c->position + (off_t)piece_bytes > c->size) {
        struct stat status;
        check(fstat(file_fd, &status) == 0, "fstat");
        c->size = status.st_size;
        c->position = 0;
    }
    c->left = (off_t)piece_bytes < c->size ? piece_bytes : (size_t)c->size;
    size = htonl(c->left);
    return send(c->fd, &size, 4, MSG_MORE | MSG_NOSIGNAL) == 4 ? 1 : -1;
}

static int source_ready(struct connection *c) {
    if (c->left == 0) {
        ssize_t count = recv(c->fd, c->in + c->in_bytes, REQUEST_BYTES - c->in_bytes, 0);
        if (count <= 0)
            return count < 0 && errno == EAGAIN;
        c->in_bytes += count;
    }
    for (;;) {
        int done = push(c);
        if (done > 0 && (done = begin_piece(c)) > 0)
            continue;
        if (done == 0)
            watch(c, c->left ? EPOLLOUT : EPOLLIN);
        return done == 0;
    }
}

/* ---- both ---- */

static int listen_on(int port, int send_buffer) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    check(fd >= 0, "socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (send_buffer >= 0) /* Accepted sockets inherit it. */
        check(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof send_buffer) == 0, "SO_SNDBUF");
    check(bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 128) == 0, "listen");
    return fd;
}

int main(int count, char **words) {
    if (count != 7) {
        fprintf(stderr, "usage: floor sink|source PORT FILE SEND_BUFFER BYTES none|fdatasync|sendfile|write\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    is_sink = strcmp(words[1], "sink") == 0;
    is_synced = strcmp(words[6], "fdatasync") == 0;
    is_sendfile = strcmp(words[6], "sendfile") == 0;
    answer_bytes = piece_bytes = strtoul(words[5], NULL, 10);
    file_fd = open(words[3], is_sink ? O_RDWR | O_CREAT | O_TRUNC : O_RDONLY, 0644);
    check(file_fd >= 0, words[3]);
    int listener = listen_on(atoi(words[2]), atoi(words[4]));
    check((epoll_fd = epoll_create1(0)) >= 0, "epoll");
    check((sync_begin_fd = eventfd(0, 0)) >= 0 && (sync_end_fd = eventfd(0, 0)) >= 0, "eventfd");
    for (int each = 0, fds[] = {listener, sync_end_fd}; each < 2; each++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fds[each]};
        check(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fds[each], &event) == 0, "epoll_ctl");
    }
    pthread_t thread;
    if (is_synced)
        check((errno = pthread_create(&thread, NULL, sync_thread, NULL)) == 0, "pthread_create");
    for (;;) {
        struct epoll_event events[64];
        int ready = epoll_wait(epoll_fd, events, 64, -1);
        check(ready >= 0 || errno == EINTR, "epoll_wait");
        for (int each = 0; each < ready; each++) {
            int fd = events[each].data.fd;
            struct connection *c = connections[fd];
            if (fd == listener)
                accept_connection(listener);
            else if (fd == sync_end_fd)
                end_sync();
            else if (c && !(is_sink ? sink_ready(c, events[each].events) : source_ready(c)))
                close_connection(c);
        }
        if (needs_sync && !is_syncing)
            begin_sync();
    }
}
