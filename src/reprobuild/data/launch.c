/* What every remote build is started by: /out/.launch DIRECTORY PROGRAM ARGUMENT…

It stands at an absolute path that only the action's own input root has. That it runs at all shows
that the input root is `/`; a worker that runs actions elsewhere cannot find it. It then makes
sure that the build sees what docs/sandbox.md says, as far as that can be had without privileges,
and leaves in /out/.seen what it could not change, one `name value` a line: empty is good, no file
means that it never ran, `refused …` that the build was not started.

A static program without a library, so that it needs nothing of the root file system.
Build: cc -Os -static -nostdlib -ffreestanding -fno-stack-protector -fno-pic -no-pie
       -fno-asynchronous-unwind-tables -mno-red-zone -Wl,--build-id=none,-z,noseparate-code,-s
   The result is launch_x86_64.txt, in base64. */

typedef unsigned long u64;

#define CLONE_NEWUTS 0x04000000
#define CLONE_NEWUSER 0x10000000
#define CLONE_NEWNET 0x40000000

static long call(long n, long a, long b, long c, long d) {
	long r;
	register long r10 __asm__("r10") = d;
	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10)
			 : "rcx", "r11", "memory");
	return r;
}

enum {
	READ = 0, WRITE = 1, OPEN = 2, CLOSE = 3, STAT = 4, SIGACTION = 13, SIGPROCMASK = 14, IOCTL = 16, SOCKET = 41, FORK = 57, EXECVE = 59,
	EXIT = 60, WAIT4 = 61, UNAME = 63, CHDIR = 80, UNLINK = 87, UMASK = 95, GETUID = 102, GETEUID = 107,
	GETGID = 104, PRCTL = 157, SETRLIMIT = 160, SETHOSTNAME = 170, UNSHARE = 272,
};

static char seen[4096];
static u64 used;

static void say(const char *text) {
	while (*text && used < sizeof seen - 1) seen[used++] = *text++;
}

static void number(u64 value) {
	char digits[24];
	int at = 23;
	digits[at] = 0;
	do digits[--at] = '0' + value % 10, value /= 10; while (value);
	say(digits + at);
}

static void put(const char *path, int flags, const char *text, u64 length) {
	long file = call(OPEN, (long)path, flags, 0644, 0);
	if (file < 0) return;
	call(WRITE, file, (long)text, length, 0);
	call(CLOSE, file, 0, 0, 0);
}

static void leave(int status) {
	put("/out/.seen", 01101 /* write, create, truncate */, seen, used);
	if (status >= 0)
		for (;;) call(EXIT, status, 0, 0, 0);
}

static int equal(const char *a, const char *b) {
	while (*a && *a == *b) a++, b++;
	return *a == *b;
}

static u64 length(const char *text) {
	u64 n = 0;
	while (text[n]) n++;
	return n;
}

/* The name of a network interface that is not the loopback, or nothing. */
static int networked(char *name) {
	static char text[8192];
	long file = call(OPEN, (long)"/proc/net/dev", 0, 0, 0);
	if (file < 0) {
		name[0] = '?', name[1] = 0;
		return 1;
	}
	long size = call(READ, file, (long)text, sizeof text - 1, 0);
	call(CLOSE, file, 0, 0, 0);
	int line = 0;
	for (long i = 0; i < size; line++) {
		long start = i;
		while (i < size && text[i] != '\n') i++;
		i++;
		if (line < 2) continue; /* two lines of headings */
		while (text[start] == ' ') start++;
		int n = 0;
		while (text[start + n] != ':' && start + n < size && n < 15)
			name[n] = text[start + n], n++;
		name[n] = 0;
		if (!equal(name, "lo")) return 1;
	}
	return 0;
}

/* A user namespace of our own: uid 0, our host name, and a network without a way out if asked. */
static int own(int flags, u64 uid, u64 gid) {
	if (call(UNSHARE, CLONE_NEWUSER | flags, 0, 0, 0)) return 0;
	put("/proc/self/setgroups", 1, "deny", 4);
	u64 before = used;
	say("0 "), number(uid), say(" 1");
	put("/proc/self/uid_map", 1, seen + before, used - before);
	used = before;
	say("0 "), number(gid), say(" 1");
	put("/proc/self/gid_map", 1, seen + before, used - before);
	used = before;
	if (flags & CLONE_NEWUTS) call(SETHOSTNAME, (long)"reprobuild", 10, 0, 0);
	if (flags & CLONE_NEWNET) {
		struct { char name[16]; short flags; char rest[22]; } request = {"lo", 0x1 | 0x40, {0}};
		long socket = call(SOCKET, 2, 2, 0, 0);
		call(IOCTL, socket, 0x8914 /* SIOCSIFFLAGS */, (long)&request, 0);
		call(CLOSE, socket, 0, 0, 0);
	}
	/* An exec as uid 0 gains what the bounding set allows: nothing. */
	for (long cap = 0; cap < 64; cap++) call(PRCTL, 24 /* PR_CAPBSET_DROP */, cap, 0, 0);
	return 1;
}

static void limit(long resource, u64 soft, u64 hard) {
	u64 both[2] = {soft, hard};
	if (!call(SETRLIMIT, resource, (long)both, 0, 0)) return;
	both[1] = soft; /* the worker's own limit is lower than ours */
	call(SETRLIMIT, resource, (long)both, 0, 0);
}

void begin(long *stack) {
	long count = stack[0];
	char **words = (char **)(stack + 1), **env = words + count + 1;
	static char name[400], device[16];
	static u64 info[18];
	if (count < 3) leave(97);
	call(STAT, (long)words[0], (long)info, 0, 0);
	u64 mtime = info[11];
	call(UNLINK, (long)words[0], 0, 0, 0);
	u64 uid = call(GETEUID, 0, 0, 0, 0), gid = call(GETGID, 0, 0, 0, 0);
	call(UNAME, (long)name, 0, 0, 0);
	char *node = name + 65;
	int network = networked(device), foreign = !equal(node, "reprobuild");
	if (network || foreign || uid) {
		int flags = (foreign ? CLONE_NEWUTS : 0) | (network ? CLONE_NEWNET : 0);
		/* There is no way back, so a child tries first: who is uid 0 already, and has given up
		   his capabilities, may make the namespace but not be uid 0 in it (Linux 5.12). */
		int failed = 1;
		long child = call(FORK, 0, 0, 0, 0);
		if (!child)
			call(EXIT, !(own(flags, uid, gid) && !call(GETEUID, 0, 0, 0, 0)), 0, 0, 0);
		if (child > 0) call(WAIT4, child, (long)&failed, 0, 0);
		if (!failed && own(flags, uid, gid)) {
			uid = call(GETEUID, 0, 0, 0, 0);
			call(UNAME, (long)name, 0, 0, 0);
			foreign = !equal(node, "reprobuild");
			network = 0;
		}
	}
	if (uid) say("refused uid "), number(uid), say("\n"), leave(97);
	if (network) say("refused network "), say(device), say("\n"), leave(97);
	if (foreign) say("hostname "), say(node), say("\n");
	if (mtime != 1) say("mtime "), number(mtime), say("\n");
	call(UMASK, 022, 0, 0, 0);
	/* Servers ignore SIGPIPE, and what they start inherits that: `yes | head` would never end. */
	static u64 none[4];
	for (long signal = 1; signal <= 64; signal++) call(SIGACTION, signal, (long)none, 0, 8);
	call(SIGPROCMASK, 2 /* set */, (long)none, 0, 8);
	limit(4 /* core */, 0, 0);
	limit(7 /* open files */, 1024, 4096);
	limit(3 /* stack */, 8 << 20, ~0ul);
	if (call(CHDIR, (long)words[1], 0, 0, 0))
		say("refused directory "), say(words[1]), say("\n"), leave(97);
	leave(-1);
	/* As execvp does: a name without a slash is looked for on PATH. */
	char *program = words[2];
	int slash = 0;
	for (char *c = program; *c; c++) slash |= *c == '/';
	long failure = -2;
	if (slash) {
		failure = call(EXECVE, (long)program, (long)(words + 2), (long)env, 0);
	} else {
		static char path[4096];
		char *from = "/usr/local/bin:/usr/bin:/bin";
		for (char **e = env; *e; e++)
			if ((*e)[0] == 'P' && (*e)[1] == 'A' && (*e)[2] == 'T' && (*e)[3] == 'H' && (*e)[4] == '=')
				from = *e + 5;
		for (;;) {
			u64 n = 0;
			while (from[n] && from[n] != ':') n++;
			if (n + length(program) + 2 < sizeof path) {
				u64 i = 0, j = 0;
				for (; i < n; i++) path[i] = from[i];
				if (n) path[i++] = '/';
				for (; program[j]; j++) path[i + j] = program[j];
				path[i + j] = 0;
				long now = call(EXECVE, (long)path, (long)(words + 2), (long)env, 0);
				if (now != -2 && now != -20) failure = now;
			}
			if (!from[n]) break;
			from += n + 1;
		}
	}
	used = 0;
	say("cannot run "), say(program), say(": error "), number((u64)-failure), say("\n");
	call(WRITE, 2, (long)seen, used, 0);
	call(EXIT, failure == -2 ? 127 : 126, 0, 0, 0);
	for (;;);
}

__asm__(".globl _start\n_start:\n\txor %ebp,%ebp\n\tmov %rsp,%rdi\n\tand $-16,%rsp\n\tcall begin\n");
