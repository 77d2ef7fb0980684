//go:build !unix

package main

func ignoreBrokenPipes() {}
