# make check is what must be green before a push.

GO    ?= go
TOOL  := $(GO) tool -modfile=tools/go.mod
ALL   := ./... ./testdata/events
BASE  ?= HEAD~1
BENCH ?= .
COUNT ?= 10
SCALE ?= all

# What evlog --version says of a build without version control (-buildvcs=false).
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)

# Where install puts things; DESTDIR goes before all of it.
PREFIX  ?= /usr/local
BINDIR  ?= $(PREFIX)/bin
DATADIR ?= $(PREFIX)/share
MANDIR  ?= $(DATADIR)/man
BASHDIR ?= $(DATADIR)/bash-completion/completions
ZSHDIR  ?= $(DATADIR)/zsh/site-functions
FISHDIR ?= $(DATADIR)/fish/vendor_completions.d

.PHONY: build evlog man completions install uninstall release test race crash fuzz lint cover bench bench-compare bench-rivals bench-rivals-programs curves curves-draw scale profile golden check soak

build: evlog ## everything, and the command into dist/
	$(GO) build ./...

evlog:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-X main.stamped=$(VERSION)' -o dist/evlog$$($(GO) env GOEXE) ./cmd/evlog

man: evlog ## the manual pages, into dist/man1/
	rm -rf dist/man1
	dist/evlog man --dir dist/man1

completions: evlog
	mkdir -p dist/completions
	dist/evlog completion bash > dist/completions/evlog
	dist/evlog completion zsh > dist/completions/_evlog
	dist/evlog completion fish > dist/completions/evlog.fish

install: man completions ## the command, its pages and completions, below DESTDIR PREFIX
	install -d '$(DESTDIR)$(BINDIR)' '$(DESTDIR)$(MANDIR)/man1' '$(DESTDIR)$(BASHDIR)' '$(DESTDIR)$(ZSHDIR)' '$(DESTDIR)$(FISHDIR)'
	install -m 755 dist/evlog '$(DESTDIR)$(BINDIR)/evlog'
	install -m 644 dist/man1/*.1 '$(DESTDIR)$(MANDIR)/man1/'
	install -m 644 dist/completions/evlog '$(DESTDIR)$(BASHDIR)/evlog'
	install -m 644 dist/completions/_evlog '$(DESTDIR)$(ZSHDIR)/_evlog'
	install -m 644 dist/completions/evlog.fish '$(DESTDIR)$(FISHDIR)/evlog.fish'

uninstall:
	rm -f '$(DESTDIR)$(BINDIR)/evlog' '$(DESTDIR)$(MANDIR)'/man1/evlog.1 '$(DESTDIR)$(MANDIR)'/man1/evlog-*.1
	rm -f '$(DESTDIR)$(BASHDIR)/evlog' '$(DESTDIR)$(ZSHDIR)/_evlog' '$(DESTDIR)$(FISHDIR)/evlog.fish'

release: ## archives for all platforms, of what is committed, into dist/release/
	$(GO) run ./internal/release -out dist/release

test:
	$(GO) test ./...

race:
	$(GO) test -race -timeout 20m ./...

crash: ## power cuts, failing operations and killed processes, ten times as many as in make test
	EVLOG_SOAK=$${EVLOG_SOAK:-0.1} $(GO) test -count=1 -timeout 60m -run 'Crash|Kill|Power|Fail|Fault|Damage|DiskFull|Open|Repair|Model|Suite' ./...
	EVLOG_SOAK=$${EVLOG_SOAK:-0.1} TIMEOUT=60m .ci/run drivers

fuzz: ## FUZZTIME=30s for each target
	FUZZTIME=$${FUZZTIME:-30s} .ci/run fuzz

lint:
	.ci/run format vet staticcheck
	@files=$$($(TOOL) gofumpt -l .); test -z "$$files" || { echo "gofumpt: $$files"; exit 1; }
	@files=$$($(TOOL) goimports -l -local github.com/evlog-go/evlog .); test -z "$$files" || { echo "goimports: $$files"; exit 1; }

cover:
	$(GO) test -coverprofile=coverage.out -coverpkg=./evlog/...,./internal/...,./cmd/... ./...
	$(GO) tool cover -func=coverage.out | tail -n 1

bench: ## BENCH=regexp
	$(GO) test -run '^$$' -bench '$(BENCH)' ./internal/bench

bench-compare: ## this tree against BASE=HEAD~1, COUNT=10 runs each
	mkdir -p dist && rm -rf dist/base && git worktree prune && git worktree add --detach dist/base $(BASE)
	cd dist/base && $(GO) test -run '^$$' -bench '$(BENCH)' -count $(COUNT) ./internal/bench > ../bench-old.txt
	git worktree remove --force dist/base
	$(GO) test -run '^$$' -bench '$(BENCH)' -count $(COUNT) ./internal/bench > dist/bench-new.txt
	$(TOOL) benchstat dist/bench-old.txt dist/bench-new.txt

bench-rivals: ## other logs and databases beside evlog, one table: BENCH=regexp, COUNT=10 rounds
	cd internal/bench/rivals && $(GO) test -run '^$$' -bench '$(BENCH)' -benchtime $(COUNT)x -timeout 3h .

bench-rivals-programs: ## what bench-rivals needs for those in Rust and on the JVM, where there are cargo and maven
	cd internal/bench/rivals && if command -v cargo; then cargo build --release --locked --manifest-path rust/Cargo.toml; fi
	cd internal/bench/rivals && if command -v mvn; then mvn -q -B -f jvm/pom.xml prepare-package; fi

curves: ## measures the curves of docs/PERFORMANCE.md, COUNT=10 rounds, and draws them; CURVE=Open is one of them
	mkdir -p docs/performance
	EVLOG_CURVES='$(CURDIR)/docs/performance' $(GO) test -run '^$$' -bench '^BenchmarkCurve$(CURVE)' -benchtime $(COUNT)x -timeout 3h ./internal/bench
	$(MAKE) curves-draw

curves-draw: ## draws the curves again, from docs/performance/*.tsv
	cd internal/bench/curves && $(GO) run . '$(CURDIR)/docs/performance'

scale: ## logs of unusual size: SCALE=large, segments, readers, record or all
	$(GO) run ./internal/bench/scale $(SCALE)

profile: ## where the processor time and the allocations of appending, scanning and following are, into dist/profile/
	mkdir -p dist/profile
	@for p in append1 append64 enqueue scan follow; do \
		$(GO) test -run '^$$' -bench "^BenchmarkProfile/$$p$$" -benchtime $(COUNT)x -o dist/profile/bench.test \
			-cpuprofile dist/profile/$$p.cpu -memprofile dist/profile/$$p.mem -memprofilerate 1024 ./internal/bench || exit 1; \
		$(GO) tool pprof -top -nodecount 12 dist/profile/bench.test dist/profile/$$p.cpu; \
		$(GO) tool pprof -top -sample_index alloc_space -nodecount 8 dist/profile/bench.test dist/profile/$$p.mem; \
	done

golden: ## the logs that earlier versions wrote are still read as they were
	$(GO) test -count=1 -run 'Golden' ./evlog/... ./cmd/...

check: lint test race
	FUZZTIME=5s $(MAKE) fuzz
	$(MAKE) crash

soak: ## the random tests with their full counts: hours
	EVLOG_SOAK=1 $(GO) test -count=1 -timeout 24h ./...
	EVLOG_SOAK=1 TIMEOUT=24h .ci/run drivers
