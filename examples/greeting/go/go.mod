module examples.metashard.io/greeting

go 1.22
