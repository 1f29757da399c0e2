"""An order, and a mail about one."""

from django.db import models


class Order(models.Model):
    article = models.CharField(max_length=50)


class Mail(models.Model):
    order = models.OneToOneField(Order, on_delete=models.CASCADE)
