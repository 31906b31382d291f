module libnanovllm/bindings/go

go 1.24
