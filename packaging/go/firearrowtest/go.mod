module github.com/firearrow/firearrow/packaging/go/firearrowtest

go 1.21
