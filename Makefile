# The commands that a person runs; CI runs the same.

PREFIX   ?= /usr/local
DESTDIR  ?=
CARGO    ?= cargo
TRIPLE   := $(shell rustc -vV | sed -n 's/^host: //p')
RELEASE  := target/$(TRIPLE)/release

.PHONY: all demo test test-full check bench-smoke fuzz install uninstall deb clean help

all: ## Builds transom, transomd and transom-agent
	$(CARGO) build --release -p transom-cli -p transom-daemon -p transom-agent

demo: ## Boots a stock Linux guest on a real tree, works in it, and checks every byte
	scripts/demo

test: ## Formats, lints, unit tests, guests, pjdfstest: everything that must pass
	scripts/test

test-full: ## The same with all kernels, cache modes and daemons: hours; goes on where it was stopped
	scripts/test --full

check: ## The quick part of the tests: formats, lints, unit tests
	scripts/test --quick

fuzz: ## Fuzzes each target until it has had 10^8 executions in all; resumes
	scripts/fuzz

install: all ## Installs under PREFIX (/usr/local) below DESTDIR
	scripts/install "$(DESTDIR)" "$(PREFIX)" "$(RELEASE)"

uninstall: ## Removes what install put there
	scripts/install --remove "$(DESTDIR)" "$(PREFIX)"

deb: all ## Makes Debian packages in target/deb
	scripts/deb "$(RELEASE)" target/deb

clean: ## Removes what was built; the cache of fetched packages in target/cache goes with it
	$(CARGO) clean

help: ## This list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 24
