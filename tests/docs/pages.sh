# The pages whose blocks are programs or commands that a reader copies: read by `.`, in the root of the repository.
# The reference is generated from the header, and decisions are history.
pages="README.md $(ls docs/*.md | grep -v -e '/reference.md$' -e '/SUMMARY.md$') $(find bindings examples -name README.md | sort)"
