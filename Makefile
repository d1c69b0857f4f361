# Needs a Rust toolchain; a RESP server is found or installed (see .ci/with-server). For GNU make 3.81 and BSD make.

# Arguments for the demo (ARGS=--json), for the test runner (TESTS='--test store token') and for the benches (BENCH=envelope).
ARGS =
TESTS =
BENCH =

# The new script (NAME=queue/verb); the commit that today's build runs beside (FROM=v0.1.0), and vectors that may differ.
NAME =
FROM =
VECTORS =

.PHONY: help demo test minecraft test-stores lint fmt-check clippy pins-check generated docs-check bench scripts pins script upgrade-check

help: ## say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile

demo: ## run a fleet on a private store and check that nobody is lost
	@MAITRED_SERVERS='redis-server valkey-server keydb-server dragonfly' sh .ci/with-server cargo run -- demo $(ARGS)

test: minecraft ## run all tests against a real store
	@sh .ci/with-server sh .ci/test $(TESTS)

minecraft: ## install the Minecraft clients and servers of one test, where there is Node.js
	@sh .ci/minecraft

test-stores: ## run all tests on Redis 6.2, Redis 8 and Valkey 9
	@sh .ci/test-stores $(TESTS)

lint: fmt-check clippy docs-check pins-check generated ## check format, lints, documents, pins, generated files

fmt-check:
	cargo fmt --all --check

clippy:
	cargo clippy --workspace --all-targets -- -D warnings

docs-check: ## check the API documents and the links of the others
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps
	@sh .ci/links

pins-check: ## check that every script has its parts as they are and the hash that its pin says
	@sh .ci/pins check

generated: ## make generated files again and fail if one was stale
	@sh .ci/generated

bench: ## run the CPU benches
	cargo bench --benches $(BENCH)

scripts: ## put the parts of lua/parts into the scripts that name them, and pin the scripts
	@sh .ci/pins write

pins: scripts

script: ## make the skeleton of a new script (NAME=queue/verb)
	@sh .ci/script '$(NAME)'

upgrade-check: ## run a build of before beside today's in one fleet (FROM=<commit>)
	@sh .ci/upgrade-check '$(FROM)' $(VECTORS)
